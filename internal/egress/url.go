package egress

import (
	"fmt"
	"net/url"
	"strconv"

	"github.com/farhand/farhand/internal/publicnet"
)

// ErrRefused is the cause of every error that says that something must not be connected to.
var ErrRefused = publicnet.ErrRefused

// CheckURL says what is wrong with a URL as far as its text tells. Names are not resolved.
func (c Config) CheckURL(text string) error {
	if err := c.guard().CheckURL(text); err != nil {
		return err
	}
	u, err := url.Parse(text)
	if err != nil {
		return err // CheckURL has read it
	}
	port := map[string]int{"http": 80, "https": 443}[u.Scheme]
	if p := u.Port(); p != "" {
		if port, err = strconv.Atoi(p); err != nil {
			return fmt.Errorf("%w: the port %q is no number", ErrRefused, p)
		}
	}
	return c.checkPort(port)
}

func (c Config) checkPort(port int) error {
	if !c.allows(port) {
		return fmt.Errorf("%w: port %d is not open for the browser", ErrRefused, port)
	}
	return nil
}
