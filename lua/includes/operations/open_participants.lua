-- Opens the other participants of the transactions of a call, which has these keys and arguments; `words` are the
-- incarnation and the version of each participant, of which there may be this many at `most`.
-- Returns a table that has all participants by place and by their key `state`, and how many there are; or nil and a
-- refusal. If a participant cannot be opened, it has only the refusal, as its field `refused`.
--
-- Refusals: BADCALL
-- @use key_count
-- @use begin refuse inside
local function open_participants(first, keys, argv, words, most)
  local list, count = { first, [first.state] = first }, 1 + #words / 2
  if count > most or count % 1 ~= 0 or #keys < KEY_COUNT * count then
    return nil, refuse('BADCALL', 'participants')
  end
  for place = 2, count do
    local own = { unpack(keys, KEY_COUNT * (place - 1) + 1, KEY_COUNT * place) }
    local call = { argv[1], words[2 * place - 3], words[2 * place - 2], '', '0', argv[6] }
    local p, refusal = begin(own, call, first.name, 6, false, first.upkeep, false, first)
    if not p then
      p = { refused = refusal }
    elseif list[p.state] then
      return nil, refuse('BADCALL', 'participants')
    else
      list[p.state] = p
    end
    list[place] = p
  end
  return list, count
end
