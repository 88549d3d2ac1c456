package docker

import (
	"cmp"
	"errors"
	"log/slog"
	"time"
)

// Defaults of Config.
const (
	DefaultHost      = "unix:///var/run/docker.sock"
	DefaultImage     = "debian:stable-slim"
	DefaultIdle      = 10 * time.Minute
	DefaultLife      = 6 * time.Hour
	DefaultMemory    = 512 << 20
	DefaultProcesses = 128
	DefaultCPUs      = 1.0
	DefaultTmp       = 64 << 20
	DefaultKept      = 16

	keptShare = 8 // the part of Memory that KeptMemory is by default
)

// Config says which engine is used, and for what.
type Config struct {
	// Host is the address of the engine: unix:///path, or tcp://host:port. Default: DefaultHost. The engine has to see
	// workspaces at the paths at which this process sees them.
	Host string

	// Image is what containers are made of. It needs /bin/sh, and whatever commands are to find. Default: DefaultImage.
	Image string

	// Pull lets the engine pull an image that is not there: at the start, or when a command needs it within its own
	// time. Without it a missing image is an error.
	Pull bool

	// Pod names this process in the labels of its containers, for people who look at them. Required.
	Pod string

	// Idle is how long a container stays without a command. Default: DefaultIdle.
	Idle time.Duration

	// Kept is how many containers stay without a command, half of them of one tenant: the one used least recently goes,
	// of the tenant that has most. KeptMemory is how many bytes one that stays may take, without the cache of files.
	// Defaults: DefaultKept, and an eighth of Memory.
	Kept       int
	KeptMemory int64

	// Life is after how long a container ends by itself, whatever runs in it. That is for when this process and the
	// engine die together: nobody would end it then. The first command after half of it has a new one.
	// Default: DefaultLife.
	Life time.Duration

	// Memory, Processes and CPUs bound a container. Limits of a command are narrower or do not count. Memory is in
	// bytes, with what is in /tmp; CPUs is how many may be busy.
	// Defaults: DefaultMemory, DefaultProcesses, DefaultCPUs.
	Memory    int64
	Processes int
	CPUs      float64

	// Tmp is the size of /tmp and of /dev/shm each, in bytes. Default: DefaultTmp, and at most a quarter of Memory.
	Tmp int64

	Log *slog.Logger // default: slog.Default
}

// complete returns the configuration with its defaults.
func (c Config) complete() (Config, error) {
	if c.Pod == "" {
		return c, errors.New("docker: Config.Pod is required")
	}
	c.Host = cmp.Or(c.Host, DefaultHost)
	c.Image = cmp.Or(c.Image, DefaultImage)
	c.Idle = cmp.Or(c.Idle, DefaultIdle)
	c.Life = cmp.Or(c.Life, DefaultLife)
	c.Memory = cmp.Or(c.Memory, DefaultMemory)
	c.Processes = cmp.Or(c.Processes, DefaultProcesses)
	c.CPUs = cmp.Or(c.CPUs, DefaultCPUs)
	c.Kept = cmp.Or(c.Kept, DefaultKept)
	c.KeptMemory = cmp.Or(c.KeptMemory, c.Memory/keptShare)
	c.Tmp = min(cmp.Or(c.Tmp, DefaultTmp), c.Memory/4)
	c.Log = cmp.Or(c.Log, slog.Default())
	if c.Idle < 0 || c.Life < time.Second || c.Memory < 0 || c.Processes < 0 || c.CPUs < 0 || c.Tmp < 0 ||
		c.Kept < 0 || c.KeptMemory < 0 {
		return c, errors.New("docker: bounds of Config are above zero, and Life is a second at least")
	}
	return c, nil
}
