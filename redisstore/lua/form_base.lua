-- Stands before scripts that read or change what a newer release may have written.

-- known ends the script, before any change, if a value has another version than 1. A value without one has version 1.
local function known(form, version)
  if version and version ~= '1' then
    error({err = 'FORM ' .. form .. ' ' .. version})
  end
end

-- versionOf returns the version before a text, 'v2 '; nil if it has none.
local function versionOf(text)
  return string.match(text, '^v(%d+) ')
end

