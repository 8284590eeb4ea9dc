-- What a session is doing, as its band in `turns`, where it stands as `s` and its name: free to be accepted, by when it became
-- so; locked; locked by one who waits for its next message; blocked until a time. One that is nothing of this, because it has
-- nothing that can be received, has no place here. `t` and its name stand there by when its state was set.
-- @use band
local TURNS = { free = 0, locked = BAND, waiting = 2 * BAND, blocked = 3 * BAND, stated = 4 * BAND }
