-- Ends a call that would answer "nothing there", "not found" or "full" although work is still due that may change the
-- answer. It does a larger share of that work and refuses; the caller makes the same call again. Nothing else has
-- changed, and the lane does not remember the call.
--
-- If no due work is left, the function `still` is called with the number of bytes that are stored then. If `still`
-- returns true, the answer of the call is certain, and the call is not refused. Without `still`, a call could be put
-- off for ever if something becomes due in every millisecond.
--
-- Refusals: DUE (something was due first; the caller may make the same call again immediately)
-- @use advance finish refuse
local function refuse_while_due(p, still)
  p.more = 0
  advance(p, 500)
  p.lane = ''
  finish(p, '')
  if still and p.more == 0 and still(redis.call('HGET', p.store, 'bytes')) then
    return nil
  end
  return refuse('DUE', 'more')
end
