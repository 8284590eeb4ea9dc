-- Returns how far the holder of a lease has begun, as a table of the pass; nil if nobody can tell. The key `words` has
-- for each prefix of tokens: what its receiver has begun, for how many messages more it has hands, and the key of the
-- word of the receiver. Two dots stand for the first two as long as the word itself has them. All messages of a lease
-- up to `begun` have begun; of later ones, the first `hands` may have. `left` is `hands` without the messages that this
-- pass has counted. A lease that was renewed has begun: a plus is before its messages.
-- The token of a lock on a `session` has a word of its own, whose hands are for all messages that its holder holds. A
-- `careful` holder has begun nothing from the first suspect on.
local function reach(p, o, token, session)
  local prefix = session and token or string.sub(token, 1, 8)
  local known = o.reach[prefix]
  if known == nil then
    local begun, hands, key, flags = '.', nil, nil, ''
    if session then
      key = token .. ' =' .. session
    else
      begun, hands, key = string.match(redis.call('HGET', p.words, prefix) or '', '^(%S+) (%S+) (.+)$')
    end
    known = false
    if begun == '.' then
      local w = p.credits and p.credits.words[key]
      local of = w and w.prefix
      if w then
        begun, hands, flags = w.begun, w.hands, w.careful and 'c' or ''
      else
        of, begun, hands, flags = string.match(redis.call('HGET', p.words, key) or '',
          '^%S* %d+ (%S+) %d+ %d+ %d+ %d+ (%d+) (%d+) %d+ %d+ %d+ (%a*) ')
      end
      known = of and (session or of == prefix) and {
        begun = tonumber(begun), left = tonumber(hands), key = key, lives = true,
        careful = string.find(flags, 'c', 1, true) ~= nil,
      }
    elseif begun then
      known = { begun = tonumber(begun), left = tonumber(hands), key = key }
    end
    o.reach[prefix] = known or false
  end
  return known or nil
end
