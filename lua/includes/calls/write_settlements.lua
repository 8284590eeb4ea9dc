-- Appends what a call has settled to the stream of settlements. The id of a record is the number of settlements up to
-- and including its own, so a reader sees from the ids whether it has missed some. At an epoch the ids leap, because a
-- failover may have lost records; the number itself does not. The stream keeps about the last million settlements.
--
-- A record has the time of the call, a text of notes, and the number of leaps so far. A note is a letter and runs of
-- message names. The letters are: g given to a receiver, k received and deleted, c completed, a abandoned, r released
-- uncounted, l its lock has ended, f deferred, d dead-lettered, m dead-lettered at the delivery limit, t dead-lettered
-- because it expired, x expired and deleted. After g and k follow `=` and the times when the messages were enqueued,
-- each as the difference from the one before it.
-- @use epoch_leap name_runs
local function write_settlements(p)
  local notes, letter, names, count = {}, nil, {}, #p.noted
  for i = 1, count + 1 do
    local what = i <= count and string.sub(p.noted[i], 1, 1) or nil
    if what ~= letter and letter then
      notes[#notes + 1] = letter .. name_runs(names)
      names = {}
    end
    letter, names[#names + 1] = what, what and string.sub(p.noted[i], 2)
  end
  for _, gift in ipairs(p.given or {}) do
    local times, before = {}, 0
    for i = 1, #gift.names do
      local time = tonumber(string.sub(gift.records[i], 3, 15))
      times[i], before = string.format('%.0f', time - before), time
    end
    notes[#notes + 1] = gift.letter .. name_runs(gift.names) .. '=' .. table.concat(times, ',')
    count = count + #times
  end
  local last, leaps = redis.call('HINCRBY', p.state, 'settlements', count), redis.call('HGET', p.state, 'leaps')
  redis.call('XADD', p.keys[32], string.format('%.0f-0', last + leaps * EPOCH_LEAP), 't', p.now_text, 'n',
    table.concat(notes, ' '), 'l', leaps)
  if math.floor(last / 1000) > math.floor((last - count) / 1000) then
    local first = redis.call('XRANGE', p.keys[32], '-', '+', 'COUNT', 1)[1][2]
    local from = last - 1000000 + first[6] * EPOCH_LEAP
    if from > 0 then
      redis.call('XTRIM', p.keys[32], 'MINID', '~', string.format('%.0f-0', from))
    end
  end
  p.noted, p.given = {}, nil
end
