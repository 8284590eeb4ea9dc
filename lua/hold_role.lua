#!lua flags=allow-oom
-- Gives the shards of a role to the clients that ask for it: each shard to one client at a time. A client asks for all
-- shards together. At most eight clients are *members*: they have shards, or wait for some. Of the others that
-- wait, the 64 that asked last are *listed*, but none for longer than 150 seconds after it has asked.
--
-- A member whose time has ended has no shards any more. A client that asks takes the free shards, but for two seconds
-- after a member has let go of them only its fair share, so that the others find theirs. A member that asks and has
-- more than its fair share lets go of the rest. Members that should ask now are *called*: because there are shards for
-- them, or because they have too many while another member waits. A member that is not *ready* for the work of a shard
-- takes none while another one has some, and is not called for them. Listed clients are called when half of the members
-- have left, those that asked last first. A client that is called is listed no more, so the dead delay nobody for long.
--
-- Each new holder of a shard gets a fence above all earlier fences of the shard. The fence distinguishes the actions of
-- the new holder from late actions of an earlier holder. The roles of applications have the prefix `own.`. Of these, at
-- most 1,000 are remembered: a new one takes the place of roles that have been free for a day.
--
-- KEYS[1] roles      hash of the namespace: for each role the time when a member last let go of shards; the members,
--   each with the end of its time, and 1 if it is ready; the listed clients, each with the time when it asked; and for
--   each shard its holder and the fence
-- ARGV[1] role
-- ARGV[2] asker      the client that asks
-- ARGV[3] duration   the time in ms for which the client wants shards; 0 gives all up
-- ARGV[4] shards     the number of shards that the role has
-- ARGV[5] waits      1 if the client waits for shards; 0 if it becomes a member only if it has some now
-- ARGV[6] ready      1 if the client is ready for shards; 0 if it takes some only if no other member has any
--
-- Result: { the time in ms until shards of other clients may be free, 1 if the client is a member, the number of
--   members, the number of listed clients, the call: nothing, or the number of members and the clients that are
--   called, and then each shard of the client and its fence }
-- Refusals: BADCALL, FULL (there are too many roles of applications; the detail is the most)
-- Facts: repeatable
-- @use make_room refuse server_time whole_number
local role, asker, duration = ARGV[1], ARGV[2], whole_number(ARGV[3], 0, 3600000)
local shards, waits, ready = whole_number(ARGV[4], 1, 64), ARGV[5] == '1', ARGV[6] == '1'
local own = string.find(role, '^own%.%w[%w._-]*$')
if not own and not string.find(role, '^[a-z]+$') or not string.find(asker, '^%w+$') or not duration or not shards then
  return refuse('BADCALL', 'role')
end
local now, most, most_listed, longest_listed = tonumber(server_time()), 8, 64, 150000
local stored = redis.call('HGET', KEYS[1], role)
if own and not stored and duration > 0 then
  local refusal = make_room(KEYS[1], function(name, held)
    -- A later holder gets a fence of `now` at least, so a fence below `now` need not be remembered.
    local freed, members, holders = string.match(held, '^(%d+);([^;]*);[^;]*;([^;]*)$')
    local used, fenced = tonumber(freed or 0), 0
    for ended in string.gmatch(members or '', '%w+ (%d+) %d') do
      used = math.max(used, tonumber(ended))
    end
    for fence in string.gmatch(holders or '', '[%w-]+ (%d+)') do
      fenced = math.max(fenced, tonumber(fence))
    end
    return string.find(name, '^own%.') and used < now - 86400000 and fenced < now
  end)
  if refusal then
    return refusal
  end
end

local freed, text, waiting, holders = string.match(stored or '', '^(%d+);([^;]*);([^;]*);([^;]*)$')
freed = tonumber(freed or 0)
-- The other members, whose time has not ended. If the clock has gone back, a stored end may be further ahead than the
-- longest duration. Then it is void.
local members, ends, has, is_ready, sharing = {}, {}, { [asker] = 0 }, {}, 0
for name, ended, flag in string.gmatch(text or '', '(%w+) (%d+) (%d)') do
  ended = tonumber(ended)
  if name ~= asker and ended > now and ended <= now + 3600000 then
    members[#members + 1], ends[name], has[name], is_ready[name] = name, ended, 0, flag == '1'
    sharing = sharing + (is_ready[name] and 1 or 0)
  end
end
local listed, asked = {}, {}
for name, at in string.gmatch(waiting or '', '(%w+) (%d+)') do
  at = tonumber(at)
  if name ~= asker and not ends[name] and at <= now and now < at + longest_listed then
    listed[#listed + 1], asked[name] = name, at
  end
end
local room = #members < most
local holder, fence, free, of_others = {}, {}, 0, 0
for name, number in string.gmatch(holders or '', '([%w-]+) (%d+)') do
  holder[#holder + 1], fence[#fence + 1] = name, tonumber(number)
end
for i = 1, shards do
  if not has[holder[i]] or holder[i] == asker and not room then
    holder[i] = '-'
    free = free + 1
  else
    has[holder[i]] = has[holder[i]] + 1
    of_others = of_others + (holder[i] == asker and 0 or 1)
  end
  fence[i] = fence[i] or 0
end

local before, calls = has[asker], {}
ready = ready or before > 0 or of_others == 0
if duration == 0 then
  for i = 1, shards do
    if holder[i] == asker then
      holder[i], freed = '-', now
    end
  end
elseif room then
  local fair = math.ceil(shards / (sharing + 1))
  local most_now, all_held = freed <= now and now < freed + 2000 and fair or shards, free == 0
  for i = 1, shards do
    if holder[i] == '-' and ready and has[asker] < most_now then
      holder[i] = asker
      fence[i] = math.max(fence[i] + 1, now) -- `now` is also higher than fences that a failover may have lost
      has[asker] = has[asker] + 1
    elseif holder[i] == asker and fence[i] == 0 then
      fence[i] = now
    elseif holder[i] == asker and all_held and has[asker] > fair then
      holder[i], freed, has[asker] = '-', now, has[asker] - 1
    end
  end
  for i = 1, has[asker] == 0 and waits and ready and all_held and #members or 0 do
    if has[members[i]] > fair then
      calls[#calls + 1] = members[i] -- this one lets go of some when it asks
    end
  end
end
local joins = duration > 0 and room and (waits or has[asker] > 0)
local let_go = 0
for i = 1, shards do
  let_go = let_go + (holder[i] == '-' and freed == now and 1 or 0)
end
if let_go > 0 then
  local fair = math.ceil(shards / math.max(1, sharing + (joins and ready and 1 or 0)))
  for least = 0, fair - 1 do
    for i = #members, 1, -1 do -- those that asked last are the most likely to be there
      if has[members[i]] == least and #calls < let_go and (is_ready[members[i]] or of_others == 0) then
        calls[#calls + 1] = members[i]
      end
    end
  end
end
if joins then
  members[#members + 1], is_ready[asker] = asker, ready
  -- A client that waits asks again after two thirds of its time, so another one gets its place soon after it has died.
  ends[asker] = now + (has[asker] > 0 and duration or math.min(duration, 60000))
elseif duration > 0 and waits then
  listed[#listed + 1], asked[asker] = asker, now
  if #listed > most_listed then
    table.remove(listed, 1)
  end
end
local all_listed = #listed
if duration > 0 and (joins or waits) or before > 0 or string.find(stored or '', asker, 1, true) then
  for _ = 1, #members <= most / 2 and math.min(#listed, most - #members) or 0 do
    calls[#calls + 1] = table.remove(listed)
  end
  local member_texts, listed_texts, shard_texts = {}, {}, {}
  for i = 1, #members do
    member_texts[i] = string.format('%s %.0f %d', members[i], ends[members[i]], is_ready[members[i]] and 1 or 0)
  end
  for i = 1, #listed do
    listed_texts[i] = string.format('%s %.0f', listed[i], asked[listed[i]])
  end
  for i = 1, shards do
    shard_texts[i] = string.format('%s %.0f', holder[i], fence[i])
  end
  local value = string.format('%.0f;%s;%s;%s', freed, table.concat(member_texts, ','), table.concat(listed_texts, ','),
    table.concat(shard_texts, ','))
  redis.call('HSET', KEYS[1], role, value)
end

local ms, reply = has[asker] > 0 and duration or 3600000, {}
for i = 1, shards do
  if holder[i] == '-' then
    ms = math.min(ms, joins and math.max(ready and 0 or 2000, freed + 2000 - now) or 0)
  elseif holder[i] ~= asker then
    ms = math.min(ms, ends[holder[i]] - now)
  else
    reply[#reply + 1] = i - 1
    reply[#reply + 1] = fence[i]
  end
end
local call = #calls > 0 and string.format('%d %s', #members, table.concat(calls, ' ')) or ''
return { ms, joins and 1 or 0, #members, all_listed, call, unpack(reply) }
