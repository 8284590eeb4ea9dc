-- Gives messages to the holders of the sessions in which some may have become ready, as `distribute` explains. Returns
-- whether holders are left that the next calls must look at.
-- @use comes_before open_credit push_gift push_to rank_of roused_holders side_named turns write_many
local function serve_held(p, caller)
  local c, able, side = open_credit(p), {}, side_named['']
  for _, one in ipairs(roused_holders(p)) do
    able[#able + 1] = one.w ~= caller and one or nil
  end

  -- Return the first holder by rank that may get a push.
  local function first()
    local best, lowest = nil, nil
    for i = 1, #able do
      local one = able[i]
      local rank = one.left > 0 and not one.aside and rank_of(c, one.w, p.now)
      if rank and (not best or comes_before(rank, one.w.key, lowest, best.w.key)) then
        best, lowest = one, rank
      end
    end
    return best
  end

  local one = first()
  while one and c.pushes > 0 do
    local given, none = push_gift(p, one.w, side, math.min(one.w.limit - one.w.messages, 16, one.left))
    one.aside, one.left = given == 0, none and 0 or one.left - (given or 0)
    one = first()
  end
  local told, later = 0, {}
  for i = 1, caller and 0 or #able do
    local w = able[i].w
    if able[i].left > 0 and w.told == 0 and rank_of(c, w, p.now) then
      if told < 64 then
        told = told + 1
        push_to(p, w)
      else
        later[#later + 1], later[#later + 2] = TURNS.locked + 1, 's' .. w.session
      end
    end
  end
  if #later > 0 then
    write_many('ZADD', p.turns, later)
  end
  return #later > 0
end
