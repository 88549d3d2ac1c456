package browser

import (
	"time"

	"github.com/farhand/farhand/internal/egress"
)

// Config is the settings of Browsers.
type Config struct {
	// Dir is where profiles are, in a folder of their own. Required.
	Dir string

	// Program is the absolute path of Chromium. Empty: it is looked for where systems have it.
	Program string

	// NoSandbox runs Chromium without its own sandbox. That is needed if the gateway is root or the kernel gives it no
	// user namespaces; a page that breaks out of Chromium is then the gateway's own user.
	NoSandbox bool

	MaxBrowsers int           // at once; default 8
	MaxTabs     int           // of one browser; default 8
	Idle        time.Duration // after which a browser that nobody uses is ended; default 10 min
	Evict       time.Duration // after which it may be ended for another session's; default 1 min

	// Memory is how many bytes the processes of one browser may take together; default 2 GiB. A browser that takes more
	// is ended.
	Memory int64

	// Egress says where pages may come from, and how much.
	Egress egress.Config
}

const (
	defaultBrowsers = 8
	defaultTabs     = 8
	defaultIdle     = 10 * time.Minute
	defaultEvict    = time.Minute
	defaultMemory   = 2 << 30

	weighEvery    = 500 * time.Millisecond // how often the memory of a browser is looked at
	startTimeout  = 20 * time.Second       // until Chromium answers
	attachTimeout = 15 * time.Second       // until a new tab does
	loadTimeout   = 20 * time.Second       // of a page, in the eyes of a model; what is there by then is shown
	settleTimeout = 5 * time.Second        // of a page after something was done to it
	askingTimeout = 2 * time.Second        // of what a loaded page still asks for
	quiet         = 200 * time.Millisecond

	windowWidth, windowHeight = 1280, 800
	maxMessage                = 64 << 20 // bytes of one message from Chromium
)

func (c Config) orDefaults() Config {
	if c.MaxBrowsers == 0 {
		c.MaxBrowsers = defaultBrowsers
	}
	if c.MaxTabs == 0 {
		c.MaxTabs = defaultTabs
	}
	if c.Idle == 0 {
		c.Idle = defaultIdle
	}
	if c.Evict == 0 {
		c.Evict = defaultEvict
	}
	if c.Memory == 0 {
		c.Memory = defaultMemory
	}
	return c
}
