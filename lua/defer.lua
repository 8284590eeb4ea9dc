#!lua flags=allow-oom
-- Sets locked messages aside: they stay where they are and are given out by their number only.
--
-- KEYS[1-30] partition   in the order of includes/begin.lua
-- ARGV[1-6]  call        run_id, incarnation, version, lane, number, now
-- ARGV[7...] groups      token, count, and for each message of that lease its name and changed properties or nothing
--
-- Result: { more, the names of those whose lock was lost }
-- Refusals: call
-- @use advance
-- @use altered
-- @use begin
-- @use entry
-- @use entry_text
-- @use finish
-- @use groups
-- @use held
-- @use loosen
-- @use refuse
-- @use repeated
-- @use seat
-- @use side_of
-- @use unseat
-- @use words
local p, refusal = begin(KEYS, ARGV, 'defer', 6, true)
if not p then
  return refusal
end
if p.repeated then
  return repeated(p, { 0, words(p.repeated) })
end
local list = groups(ARGV, 7, 2)
if not list then
  return refuse('BADCALL', 'groups')
end

advance(p, 100)
local seen, lost = {}, {}
for g = 1, #list do
  local mine = held(p, list[g], seen, lost)
  for i = 1, #mine.names do
    local member, e = mine.names[i], entry(mine.entries[i])
    local side, number = side_of(member)
    altered(p, e, ARGV[mine.at[i] + 1])
    e.home = 'f'
    if mine.session then
      unseat(p, mine.session, 'h', number)
      seat(p, mine.session, 'p', number)
    end
    p.placed[#p.placed + 1] = side.deferred + number
    p.placed[#p.placed + 1] = member
    p.entered[#p.entered + 1] = member
    p.entered[#p.entered + 1] = entry_text('            ', e)
  end
  loosen(p, mine, #mine.names)
end
finish(p, table.concat(lost, ' '))
return { p.more, lost }
