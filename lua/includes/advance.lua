-- Does a bounded share of what is due in the partition, before anything else: nobody else moves time on. What is left over is
-- told in `more`, upon which the caller calls again. Mostly nothing is due, which three lower bounds tell without another
-- look.
-- @use work_off
local function advance(p, share)
  if p.epoch or p.next_lock <= p.logical or p.next_due <= p.now or p.head <= p.now then
    work_off(p, share)
  end
end
