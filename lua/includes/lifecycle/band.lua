-- The score of a message in `order` is band * 2^48 + number, so its band is its state, and a band lies in the order of numbers.
-- Ready messages of the main side use one band for each level of priority. sbredis/engine/_lifecycle.py holds the same numbers.
local BAND = 281474976710656
