-- Stores a message for an entity in another slot under a new number. It waits here until a client moves it. Its life
-- begins at its destination: until then no time to live runs, no receiver gets it, and duplicate detection does not see
-- it. Its record is that of a message that never expires and was enqueued now, as its receiver sees it if it becomes a
-- transfer dead letter. Its changed properties contain its destination.
-- @use add_pair never_text transfer
-- @use store_record inside
local function place_transfer(p, number, level, payload, changes)
  local record = 'a' .. level .. p.now_text .. payload
  add_pair(p.placed, TRANSFER + number, number)
  add_pair(p.entered, number, string.format('            %sx-00000%s%d;;;', level, NEVER_TEXT, #record) .. changes)
  store_record(p, number, record, #changes)
  p.awaits_mover = true
end
