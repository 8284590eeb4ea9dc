-- Refuses a call because a text in the registry cannot be read. The detail has three words: the kind of the text
-- (record, rule or counts), its layout, and its name. The layout is `missing` if there is no text, and `unreadable` if
-- the text is of the present layout.
--
-- Refusals: LAYOUT
-- @use refuse
local function refuse_unreadable(kind, text, name)
  local layout = text and string.match(string.sub(text, 1, 16), '^%w+') or not text and 'missing' or 'unreadable'
  return refuse('LAYOUT', string.format('%s %s %s', kind, layout == '2' and 'unreadable' or layout, name))
end
