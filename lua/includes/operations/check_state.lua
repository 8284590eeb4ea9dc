-- Checks the arguments of a new session state, from `at` on: the session, the token of its lock, whether there is a
-- state, and the state. In a transaction, `p.stated` has the sizes of the states that earlier operations set. Returns
-- what apply_state needs; or nil and a refusal.
-- @use named_session parse_token refuse refuse_full session_lock_end store_limits inside
local function check_state(p, argv, at)
  local token, given, state = parse_token(argv[at + 1]), argv[at + 2] == '1', argv[at + 3]
  local session, unfit = named_session(p, argv[at], true, token)
  if unfit or not token or not given and (argv[at + 2] ~= '0' or state ~= '') then
    return nil, unfit or refuse('BADCALL', 'state')
  end
  if not session_lock_end(p, session, token) then
    return nil, refuse('LOST', 'session')
  end
  local limits = store_limits(p)
  local growth = #state - (p.stated and p.stated[session] or redis.call('HSTRLEN', p.states, '=' .. session))
  if #state > tonumber(limits[STORE.largest]) then
    return nil, refuse('TOOLARGE', '0')
  end
  local refused = refuse_full(p, limits, growth)
  if refused then
    return nil, refused
  end
  if p.stated then
    p.stated[session] = #state
  end
  return { session = session, state = given and state or nil, growth = growth }
end
