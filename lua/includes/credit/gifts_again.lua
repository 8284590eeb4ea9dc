-- Returns the gifts of a prefix whose messages are still locked, and the number of these messages and of their bytes:
-- those after the serial `seen`, or after the last one that the word knows to be seen. If the word has another prefix
-- now, a gift shows no counts. Each gift gets a new fence: its receiver may not have seen the first one.
-- @use gift_token messages_again next_fence
local function gifts_again(p, prefix, seen, w)
  local tokens, gifts, messages, bytes, unseen = {}, {}, 0, 0, {}
  if w and w.prefix == prefix then
    seen, unseen = math.max(seen, w.seen), w.unseen
  end
  for i = 1, 17 do
    tokens[i] = gift_token(prefix, seen + i)
  end
  local leases = redis.call('HMGET', p.leases, unpack(tokens))
  for i = 1, 17 do
    if leases[i] then
      local names, records, extras, till, size = messages_again(p, tokens[i])
      if #names > 0 then
        local until_messages, until_bytes = 0, 0
        for j = 1, #unseen do
          if unseen[j].serial == seen + i then
            until_messages, until_bytes = unseen[j].messages, unseen[j].bytes
          end
        end
        messages, bytes = messages + #names, bytes + size
        local head = string.format('%s %.0f %.0f %.0f %.0f %.0f', prefix, seen + i, until_messages, until_bytes, till - p.logical,
          next_fence(p))
        gifts[#gifts + 1] = { head, names, records, extras }
      end
    end
  end
  return gifts, messages, bytes
end
