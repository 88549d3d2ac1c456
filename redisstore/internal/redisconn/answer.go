package redisconn

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"
)

// Err returns the command's own error. A missing value is not one.
func (c *Command) Err() error {
	if err := c.cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return nil
}

// Int returns the answer as a number, zero when it is none.
func (c *Command) Int() int64 { return Int(c.cmd.Val()) }

// Text returns the answer as a string and whether there was one.
func (c *Command) Text() (string, bool) {
	s, ok := c.cmd.Val().(string)
	return s, ok
}

// List returns the answer as a list, nil when it is none.
func (c *Command) List() []any {
	l, _ := c.cmd.Val().([]any)
	return l
}

// Parts returns the answer as a list of n elements. found is false if the list is empty, by which scripts say that
// there is nothing to return. Any other answer is an error: it is not what there is, nor does it say that there is
// nothing.
func (c *Command) Parts(n int) (parts []any, found bool, err error) {
	parts, ok := c.cmd.Val().([]any)
	switch {
	case !ok:
		return nil, false, c.ErrShape()
	case len(parts) == 0:
		return nil, false, nil
	case len(parts) != n:
		return nil, false, fmt.Errorf("answer of %d elements instead of %d", len(parts), n)
	}
	return parts, true, nil
}

// StringParts is Parts for a list of strings.
func (c *Command) StringParts(n int) (parts []string, found bool, err error) {
	_, found, err = c.Parts(n)
	if !found || err != nil {
		return nil, false, err
	}
	return c.Strings(), true, nil
}

// Strings returns the answer as a list of strings, empty when it is none.
func (c *Command) Strings() []string { return Strings(c.cmd.Val()) }

// Map returns the answer, a flat list of names and values, as a map.
func (c *Command) Map() map[string]string { return Map(c.cmd.Val()) }

// ErrShape is the error for an answer none of our scripts gives.
func (c *Command) ErrShape() error { return fmt.Errorf("unexpected answer of type %T", c.cmd.Val()) }

// Int reads an element of an answer as a number, zero when it is none.
func Int(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		if err != nil { // a score may be printed as a float
			f, _ := strconv.ParseFloat(v, 64)
			return int64(f)
		}
		return n
	default:
		return 0
	}
}

// Strings reads an element of an answer as a list of strings.
func Strings(v any) []string {
	l, _ := v.([]any)
	list := make([]string, len(l))
	for i, e := range l {
		list[i], _ = e.(string)
	}
	return list
}

// Map reads an element of an answer, a flat list of names and values, as a map.
func Map(v any) map[string]string {
	l := Strings(v)
	m := make(map[string]string, len(l)/2)
	for i := 0; i+1 < len(l); i += 2 {
		m[l[i]] = l[i+1]
	}
	return m
}
