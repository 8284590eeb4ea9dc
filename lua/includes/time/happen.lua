-- Lets the next event in `due` happen, at its time. The letter of its name says what happens (see due_name).
-- @use activate entry expire_active note_moved note_ready unblock_session
local function happen(p, o, time)
  local place = (o.at_due + 1) / 2
  local text, member, found = o.due[o.at_due], o.members[place], o.entries[place]
  local letter, m = string.byte(text), nil
  o.at_due = o.at_due + 2
  if letter == 97 then -- a
    m = activate(p, o, member, time)
  elseif letter == 98 then -- b
    unblock_session(p, o, string.sub(text, 2), time)
    return
  elseif letter == 100 then -- d
    m = note_moved(o, member, 'd', entry(found))
    note_ready(p, o, m, time)
  else -- e
    m = expire_active(p, o, member, found and entry(found), nil, time)
  end
  m.index = text
end
