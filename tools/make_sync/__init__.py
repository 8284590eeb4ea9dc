"""Make the synchronous API from the asynchronous one: the modules of ``sbredis/sync`` that are façades.

python -m tools.make_sync            write the modules and the tests
python -m tools.make_sync --check    fail if a file is stale
python -m tools.make_sync --left-out    list the tests that have no synchronous form, and why

The tool reads the modules of ``sbredis/aio``. For each public class it writes a façade with the same methods: the same
signatures, overloads, decorators and docstrings, and a body that calls the asynchronous twin over the bridge.

| a member of the asynchronous class | the body of its counterpart |
|---|---|
| a coroutine function | ``bridge.call``, or ``bridge.call_undoable`` if it is in ``UNDOABLE`` |
| a property, or an attribute with a docstring | the property of the twin |
| a function that returns a list | a synchronous list around it |
| a function that makes another public object | ``bridge.make``, and a façade around the object |
| a function of a class in ``RECORDING`` | ``bridge.run`` |
| a function in ``DIRECT`` | the function of the twin, in the thread of the caller |
| a member in ``DIFFERENT`` | the text there |

The modules of ``BY_HAND`` have threads of their own and are no façades. A member for which there is no rule is an
error, which says what to add. The tables are in ``rules.py``.

From the tests of the asynchronous API (``derived_tests.py`` lists them) the tool makes those in ``tests/sync/made``.
"""
