-- Returns the pin of a partition, parsed from the field `pin` of `state`; a partition that was never reserved has
-- zeros. Messages up to `floor` are committed and are to be removed. Messages above it, up to `last`, are pinned. The
-- plan ends at `upto`; `last` is lower while the pin grows.
local function parse_pin(text)
  local fence, plan, floor, last, upto, at = string.match(text or '', '^(%d+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  return {
    fence = tonumber(fence or 0), plan = tonumber(plan or 0), floor = tonumber(floor or 0), last = tonumber(last or 0),
    upto = tonumber(upto or 0), at = tonumber(at or 0),
  }
end
