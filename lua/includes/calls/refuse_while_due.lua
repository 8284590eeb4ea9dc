-- Ends a call that would answer "nothing there", "not found" or "full" although due work that may change this answer is
-- not done yet. It does a larger share of the due work and refuses the call. The caller then makes the same call again.
-- Nothing else has changed, and the lane does not remember the call.
--
-- If no due work is left, the function `still` is called with the number of bytes that are stored then. If `still`
-- returns true, the answer of the call is certain, and the call is not refused. Without `still`, the script could
-- refuse a call again and again if new work becomes due in every millisecond.
--
-- A call of several transactions may already have applied some of them (`p.advanced`). It has then done its share of
-- the due work. So only the transaction is refused, and the rest of the due work is left to other calls.
--
-- Refusals: DUE (due work had to be done first; the caller may make the same call again immediately)
-- @use advance finish refuse
local function refuse_while_due(p, still)
  if p.advanced then
    return refuse('DUE', 'more')
  end
  p.more = 0
  advance(p, 250)
  local lane = p.lane
  p.lane = ''
  finish(p, '')
  p.lane = lane -- a call of several transactions goes on if this one is refused
  if still and p.more == 0 and still(redis.call('HGET', p.store, 'bytes')) then
    return nil
  end
  return refuse('DUE', 'more')
end
