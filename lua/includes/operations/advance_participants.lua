-- Does a share of the due work of all participants, once in a call. All of them together do the share of one call.
-- Until a transaction that is a use of a participant is applied, the call is upkeep for the participant.
-- @use advance
local function advance_participants(participants, count)
  if participants[1].advanced then
    return
  end
  for place = 1, count do
    local p = participants[place]
    if not p.refused then
      p.upkeep, p.advanced, p.beside, p.room = true, true, participants, math.floor(2097152 / count)
      advance(p, math.ceil(100 / count))
    end
  end
end
