package auth

// Bound returns the number of bound identities that can end.
func (l *Live) Bound() int { return len(l.bound.all()) }
