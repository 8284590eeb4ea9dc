-- Takes the grants of a call, and gives the caller messages. Returns the list that answers the grants. `finish`
-- completes it: it gives messages to other receivers, and chooses who keeps the due time. With `gave_back`, messages
-- that the call has released go to other receivers first.
--
-- A grant at a held session may leave the session. If it also yields, it leaves only if others wait: at most one
-- session is left for each of these. For each session that was to be left and was not, the call gives one free session
-- less.
-- @use ready_count flush number_text open_credit side_named
-- @use distribute gifts_again ready_for reply_gift take_grant
-- @use count_held let_go_of_session update_session_turns waiting_sessions inside
local function take_grants(p, grants, gave_back)
  flush(p)
  if p.index and next(p.touched) then
    update_session_turns(p)
  end
  local kept, waiting = 0, nil
  local c, answers = open_credit(p), { string.sub(p.run, 1, 8) .. ' ' .. number_text[p.now] }
  p.granting = {}
  for i = 1, #grants do
    local g, answer, emptied, passed = grants[i], { '' }, nil, nil
    if g.source == 'next' then
      g.limit = math.max(g.messages, g.limit - kept)
      g.callers = math.min(g.callers, g.limit)
    end
    if g.leaves and g.yields and not waiting then
      waiting = waiting_sessions(p)
    end
    local letter, w, refusal, retired = take_grant(p, g)
    if g.leaves and letter == 't' and (not g.yields or waiting > 0) and count_held(p, g.session) == 0
      and ready_count(p, w) == 0 then
      waiting = waiting and waiting - 1
      w.limit, w.announced = math.min(w.limit, w.messages), false -- the reply tells it of the end
      let_go_of_session(p, g.session, g.receiver)
      letter, w, refusal = 'r', nil, 'LOST released'
    end
    kept = kept + (g.leaves and (w or letter == 'f') and 1 or 0)
    local again = w and (g.again or letter ~= 't')
    local asked = w and not g.now and (w.limit > w.messages or w.announced)
    if again then
      local all = { (gifts_again(p, g.prefix, g.seen, w)), unpack(retired or {}) }
      for j = 1, retired and 0 or #g.retired do
        all[#all + 1] = gifts_again(p, g.retired[j].prefix, g.retired[j].seen, w)
      end
      for j = 1, #all do
        for k = 1, #all[j] do
          answer[#answer + 1] = all[j][k]
        end
      end
    end
    if letter == 't' then
      if gave_back and not g.now then
        distribute(p, w)
      end
      local moved = p.moved
      local gifts
      gifts, emptied, passed = reply_gift(p, w)
      for j = 1, #gifts do
        answer[#answer + 1] = gifts[j]
      end
      p.moved = moved
      if g.now then
        w.limit, w.announced = math.min(w.limit, w.messages), false
      end
    end
    local there = false
    if w and not emptied then
      local side = side_named[w.source]
      if side then
        there, passed = ready_for(p, w, side)
      else
        there = p.index and ready_count(p, w) > 0
      end
    end
    if there and w.limit <= w.messages then
      w.announced = false -- the reply says it
    end
    p.moved = p.moved or there or passed
    if w and w.session then
      p.roused = p.roused or {}
      p.roused[w.session] = true
    end
    p.granting[i] = {
      answer = answer, letter = letter, w = w, asked = asked, refusal = refusal or '',
      serial = w and w.serial or 0, messages = w and w.messages or 0, bytes = w and w.bytes or 0,
      flags = (again and 'a' or '') .. (there and 'm' or '') .. (passed and 's' or ''),
    }
    answers[i + 1] = answer
  end
  return answers
end
