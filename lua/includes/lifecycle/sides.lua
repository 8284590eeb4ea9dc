-- The two queues of a partition, by the letter before the numbers of their messages: the main one and the dead-letter queue.
-- Each has bands of its own in `order`; the first and the last score of what is ready to be received stand ready as text. Who
-- waits at h has a session and waits for its next message, who waits at s for a session.
-- @use band
local SIDES = {
  [''] = {
    prefix = '', room = 0, ready = 0, held = 8 * BAND, locked = 9 * BAND, delayed = 10 * BAND, deferred = 11 * BAND,
    scheduled = 13 * BAND, from = '0', to = '2251799813685247',
  },
  d = {
    prefix = 'd', room = 1, ready = 16 * BAND, locked = 18 * BAND, delayed = 19 * BAND, deferred = 20 * BAND,
    from = '4503599627370496', to = '4785074604081151',
  },
  h = { prefix = 'h', room = 2 },
  s = { prefix = 's', room = 3 },
}
