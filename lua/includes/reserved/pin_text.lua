-- Returns a pin as text, in the form that `parse_pin` parses.
local function pin_text(pin)
  return string.format('%.0f %.0f %.0f %.0f %.0f %.0f', pin.fence, pin.plan, pin.floor, pin.last, pin.upto, pin.at)
end
