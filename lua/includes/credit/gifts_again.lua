-- Returns the gifts of a prefix whose messages or sessions are still locked, and the number of these messages and of
-- their bytes: those after the serial `seen`, or after the last one that the word knows to be seen. If the word has
-- another prefix now, a gift shows no counts. Each gift gets a new fence: its receiver may not have seen the first one.
-- A session is shown with all gifts of its word that were not seen.
-- @use gift_letters messages_again next_fence
-- @use session_lock_end words_of inside
local function gifts_again(p, prefix, seen, w)
  -- Return the gifts of a held session that its word keeps, because they were not seen, and whose messages are still
  -- held; and the number of these messages and of their bytes. With a prefix, only its gifts after the serial `after`.
  local function of_session(held, of, after)
    local shown, count, total = {}, 0, 0
    for i = 1, #held.gifts do
      local g = held.gifts[i]
      if not of or g.prefix == of and g.serial > after then
        local names, records, extras, till, size = messages_again(p, string.sub(held.key, 1, 11), g.runs)
        if #names > 0 then
          local until_messages, until_bytes = 0, 0
          for j = 1, g.prefix == held.prefix and #held.unseen or 0 do
            if held.unseen[j].serial == g.serial then
              until_messages, until_bytes = held.unseen[j].messages, held.unseen[j].bytes
            end
          end
          count, total = count + #names, total + size
          local head = string.format('%s %.0f %.0f %.0f %.0f 0', g.prefix, g.serial, until_messages, until_bytes,
            till - p.logical)
          shown[#shown + 1] = { head, names, records, extras }
        end
      end
    end
    return shown, count, total
  end

  local tokens, gifts, messages, bytes, unseen = {}, {}, 0, 0, {}
  if w and w.prefix == prefix then
    seen, unseen = math.max(seen, w.seen), w.unseen
  end
  if w and w.session then
    return of_session(w, prefix, seen)
  end
  for i = 1, 17 do
    tokens[i] = prefix .. gift_letters[seen + i]
  end
  local leases = redis.call('HMGET', p.leases, unpack(tokens))
  for i = 1, 17 do
    local till, session, names, records, extras, size, firsts = nil, nil, {}, nil, nil, 0, nil
    if leases[i] and w and w.source == 'next' then
      till, session = session_lock_end(p, nil, tokens[i])
    elseif leases[i] then
      names, records, extras, till, size = messages_again(p, tokens[i])
    end
    if session or #names > 0 then
      local until_messages, until_bytes = 0, 0
      for j = 1, #unseen do
        if unseen[j].serial == seen + i then
          until_messages, until_bytes = unseen[j].messages, unseen[j].bytes
        end
      end
      messages, bytes = messages + (session and 1 or #names), bytes + size
      local head = string.format('%s %.0f %.0f %.0f %.0f %.0f', prefix, seen + i, until_messages, until_bytes, till - p.logical,
        next_fence(p))
      gifts[#gifts + 1] = { head, session or names, records, extras }
      if session then
        local key = tokens[i] .. ' =' .. session
        words_of(p, { key })
        firsts = p.credits.words[key] and of_session(p.credits.words[key]) or {}
        for j = 1, #firsts do
          gifts[#gifts][2 + j] = firsts[j]
        end
      end
    end
  end
  return gifts, messages, bytes
end
