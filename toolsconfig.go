package farhand

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/farhand/farhand/agent/sandbox/docker"
	"github.com/farhand/farhand/agent/tools/browser"
	"github.com/farhand/farhand/internal/egress"
	"github.com/farhand/farhand/registry"
)

// Values of ToolsConfig.Sandbox.
const (
	SandboxAuto     = "auto"
	SandboxDocker   = "docker"
	SandboxLandlock = "landlock"
	SandboxEither   = "docker,landlock"
	SandboxNone     = "none"
)

// ToolsConfig is the part of Config that is about the gateway's own tools: the folders they work in, the programs they
// run, and the browser.
type ToolsConfig struct {
	ToolsOff       []string      `env:"TOOLS_OFF" doc:"Optional tools of the program that embeds the gateway that are switched off, comma-separated."`
	AgentID        string        `env:"AGENT_ID" envDefault:"main" doc:"Name of the agent that holds the conversations, which its tools are told; its folder in FARHAND_WORKSPACE_DIR has it."`
	WorkspaceDir   string        `env:"WORKSPACE_DIR" doc:"Absolute path of the folder that holds the workspaces of read, write, edit, exec and bash, one for each agent session. On a fleet put it on a volume that all pods share, or the files of a pod are lost with it. Empty: /var/lib/farhand for root, else farhand in the user's state folder."`
	WorkspaceBytes ByteSize      `env:"WORKSPACE_BYTES" envDefault:"256MiB" doc:"What one workspace may take on the disk. A command that takes more is ended."`
	WorkspaceFiles int           `env:"WORKSPACE_FILES" envDefault:"20000" doc:"Files and folders in one workspace."`
	WorkspaceTTL   time.Duration `env:"WORKSPACE_TTL" envDefault:"24h" doc:"How long a workspace is kept after its last use."`
	ProgramUser    int           `env:"PROGRAM_USER" envDefault:"65534" doc:"Number of the user and group that programs run as if the gateway runs as root; else they run as the gateway's own user. Workspaces are theirs."`
	ProgramEnv     []string      `env:"PROGRAM_ENV" doc:"Names of variables of the gateway's environment that programs of exec and bash get, comma-separated. All others are kept from them."`
	ProgramMemory  ByteSize      `env:"PROGRAM_MEMORY" envDefault:"512MiB" doc:"Memory of one command, in the sandbox of all that runs there."`
	Processes      int           `env:"PROGRAM_PROCESSES" envDefault:"128" doc:"Processes and threads of one command, in the sandbox of all that runs there."`
	MaxCommands    int           `env:"MAX_COMMANDS" envDefault:"16" doc:"Commands of exec and bash that run at once on this pod, half of them of one tenant. Others wait, and are told that the gateway is busy when their time is up. As many containers of the sandbox are kept between commands, again half of them of one tenant."`
	Sandbox        string        `env:"SANDBOX" envDefault:"auto" doc:"What runs exec and bash of conversations that are group sandboxed. docker: containers. landlock: the weaker sandbox, without an engine, by the kernel's Landlock. auto: docker, or landlock if no engine of containers is configured (FARHAND_DOCKER_HOST, DOCKER_HOST, FARHAND_SANDBOX_IMAGE, FARHAND_SANDBOX_PULL) and none can be used when the gateway starts; the log says why. With one configured that cannot be used, serve refuses to start. docker,landlock: landlock then also. none: these tools are absent there. farhand doctor says what works here."`
	SandboxImage   string        `env:"SANDBOX_IMAGE" envDefault:"debian:stable-slim" doc:"Image of the containers. It needs /bin/sh and whatever commands are to find."`
	SandboxPull    bool          `env:"SANDBOX_PULL" envDefault:"false" doc:"Pull the image when it is missing."`
	DockerHost     string        `env:"DOCKER_HOST" doc:"Address of the engine, unix:///path or tcp://host:port. Empty: DOCKER_HOST, else unix:///var/run/docker.sock. It must see workspaces at the paths at which the gateway sees them."`
	SandboxCPUs    float64       `env:"SANDBOX_CPUS" envDefault:"1" doc:"CPUs that one container may keep busy."`
	SandboxIdle    time.Duration `env:"SANDBOX_IDLE" envDefault:"10m" doc:"How long a container, or a browser, stays without being used."`
	BrowserProgram string        `env:"BROWSER" doc:"Absolute path of the Chromium that the tool browser starts. Empty: where systems have it."`
	BrowserBare    bool          `env:"BROWSER_NO_SANDBOX" envDefault:"false" doc:"Run Chromium without its own sandbox, which it needs if the gateway is root or the kernel gives it no user namespaces. A page that breaks out of Chromium is then the gateway's own user."`
	MaxBrowsers    int           `env:"MAX_BROWSERS" envDefault:"8" doc:"Browsers of this pod, one for each agent session that uses one, at most half of them of one tenant. Each takes some hundred megabytes."`
	BrowserMemory  ByteSize      `env:"BROWSER_MEMORY" envDefault:"2GiB" doc:"Memory that one browser may take, all its processes together. One that takes more is ended."`
	PrivateURLs    bool          `env:"PRIVATE_URLS" envDefault:"false" doc:"Let the browser and devices' canvases load from private networks and from the machine they run on. Addresses where cloud providers hand out credentials are refused all the same."`
	BrowserPorts   []int         `env:"BROWSER_PORTS" doc:"Ports that pages may load from besides 80 and 443, comma-separated."`
}

// placeTTL is how long the fleet remembers which pod keeps what for a session: for longer than any of it is kept.
func (c *ToolsConfig) placeTTL() time.Duration {
	return max(c.WorkspaceTTL, c.SandboxIdle) + minWorkspaceTTL
}

// minWorkspaceTTL is longer than any command runs: its workspace is not removed under it.
const minWorkspaceTTL = 15 * time.Minute

// fallBack fills in what Docker's own tools read from the environment.
func (c *ToolsConfig) fallBack(environment map[string]string) {
	c.DockerHost = cmp.Or(c.DockerHost, environment["DOCKER_HOST"])
}

// workspaceDir returns the folder of the workspaces.
func (c *ToolsConfig) workspaceDir() (string, error) {
	switch state := os.Getenv("XDG_STATE_HOME"); {
	case c.WorkspaceDir != "":
		return c.WorkspaceDir, nil
	case os.Getuid() == 0:
		return "/var/lib/farhand", nil
	case filepath.IsAbs(state):
		return filepath.Join(state, "farhand"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("FARHAND_WORKSPACE_DIR: it must be set where a user has no home: %w", err)
	}
	return filepath.Join(home, ".local", "state", "farhand"), nil
}

// check reports what is wrong with the configuration.
func (c ToolsConfig) check(wrong func(ok bool, variable, message string)) {
	wrong(slices.Contains([]string{SandboxAuto, SandboxDocker, SandboxLandlock, SandboxEither, SandboxNone}, c.Sandbox),
		"SANDBOX", "must be auto, docker, landlock, docker,landlock or none")
	wrong(c.WorkspaceDir == "" || filepath.IsAbs(c.WorkspaceDir), "WORKSPACE_DIR", "must be an absolute path")
	wrong(registry.ValidToolName(c.AgentID), "AGENT_ID", "may hold letters, digits, '.', '_' and '-', a letter first")
	wrong(c.WorkspaceTTL >= minWorkspaceTTL, "WORKSPACE_TTL", "must be at least 15m: a command may use it for so long")
	for _, port := range c.BrowserPorts {
		wrong(port > 0 && port < 1<<16, "BROWSER_PORTS", fmt.Sprintf("%d is no port", port))
	}
	wrong(c.SandboxCPUs > 0, "SANDBOX_CPUS", "must be greater than zero")
}

// engines returns the engines the sandbox may have, the preferred one first. An operator who configured containers gets
// nothing weaker without having asked for it.
func (c ToolsConfig) engines() []string {
	switch c.Sandbox {
	case SandboxNone:
		return nil
	case SandboxAuto:
		if c.configuresContainers() {
			return []string{SandboxDocker}
		}
		return []string{SandboxDocker, SandboxLandlock}
	default:
		return strings.Split(c.Sandbox, ",")
	}
}

// configuresContainers reports whether a setting says which engine of containers to use, or how.
func (c ToolsConfig) configuresContainers() bool {
	return c.DockerHost != "" || c.SandboxPull || c.SandboxImage != "" && c.SandboxImage != docker.DefaultImage
}

// browser returns the configuration of the browsers. Their profiles are on this machine: nobody shares them.
func (c ToolsConfig) browser() browser.Config {
	dir, err := os.UserCacheDir()
	if err != nil { // a user without a home
		dir, _ = c.workspaceDir() // an empty one is told by browser.New
	}
	return browser.Config{
		Dir: filepath.Join(dir, "farhand"), Program: c.BrowserProgram, NoSandbox: c.BrowserBare,
		MaxBrowsers: c.MaxBrowsers, Idle: c.SandboxIdle, Memory: int64(c.BrowserMemory),
		Egress: egress.Config{AllowPrivate: c.PrivateURLs, Ports: c.BrowserPorts},
	}
}

// docker returns the configuration of the engine of containers.
func (c ToolsConfig) docker(pod string) docker.Config {
	return docker.Config{
		Host: c.DockerHost, Image: c.SandboxImage, Pull: c.SandboxPull, Pod: pod, Idle: c.SandboxIdle,
		Memory: int64(c.ProgramMemory), Processes: c.Processes, CPUs: c.SandboxCPUs, Kept: c.MaxCommands,
	}
}
