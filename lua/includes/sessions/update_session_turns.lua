-- Updates the turns of the sessions in which something has changed. `touched` maps a session to 'ready' if the session
-- certainly has a message to receive. The locked sessions are then in `p.roused`, for their holders with credit.
-- @use read_many session_messages turns write_many inside
-- @use add_pair
local function update_session_turns(p)
  local names, members = {}, {}
  for session in pairs(p.touched) do
    names[#names + 1] = session
    members[#members + 1] = 's' .. session
  end
  local scores, placed, taken = read_many('ZMSCORE', p.turns, members), {}, {}
  for i = 1, #names do
    local session, score = names[i], tonumber(scores[i] or -1)
    if score >= TURNS.locked and score < TURNS.blocked then
      p.roused = p.roused or {}
      p.roused[session] = true
    elseif score < TURNS.locked then
      local ready = p.touched[session] == 'ready' or #session_messages(p, session, 'a', 0, 0, 1) > 0
      if ready and score < 0 then
        p.moved = true
        add_pair(placed, TURNS.free + p.now, members[i])
      elseif not ready and score >= 0 then
        taken[#taken + 1] = members[i]
      end
    end
  end
  if #placed > 0 then
    write_many('ZADD', p.turns, placed)
  end
  if #taken > 0 then
    write_many('ZREM', p.turns, taken)
  end
  p.touched = {}
end
