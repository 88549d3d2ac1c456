package host

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is what /proc says of one.
type process struct {
	pid, parent, threads int
	start                int   // in clock ticks since the machine started
	resident             int64 // bytes
}

// readProcess reads what /proc says of a process that may have ended.
func readProcess(pid int) (process, bool) {
	// Not by package os, which takes three times as long: whoever kills has to be faster than who forks.
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return process{}, false
	}
	defer unix.Close(fd)
	var data [1024]byte
	n, err := unix.Read(fd, data[:])
	if err != nil {
		return process{}, false
	}
	return parseStat(pid, data[:n])
}

// parseStat reads /proc/PID/stat. The program's name, in parentheses, may have any bytes.
func parseStat(pid int, data []byte) (process, bool) {
	_, rest, ok := bytes.Cut(data[max(0, bytes.LastIndexByte(data, ')')):], []byte(") "))
	fields := bytes.Fields(rest)
	if !ok || len(fields) < 22 {
		return process{}, false
	}
	number := func(i int) int { // of proc(5), where the first two are the number and the name
		n, _ := strconv.Atoi(string(fields[i-3]))
		return n
	}
	return process{
		pid: pid, parent: number(4), threads: number(20), start: number(22),
		resident: int64(number(24)) * int64(os.Getpagesize()),
	}, true
}

// descendants returns all processes that descend from this one.
func descendants() []process {
	proc, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer proc.Close()
	names, _ := proc.Readdirnames(-1)
	children := make(map[int][]process)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProcess(pid); ok {
			children[p.parent] = append(children[p.parent], p)
		}
	}
	list := children[os.Getpid()]
	for i := 0; i < len(list); i++ {
		list = append(list, children[list[i].pid]...)
	}
	return list
}

// kill kills a process that is no child of this one, so that its number may be another's by now: the process is held by
// a descriptor before it is looked at once more.
func (p process) kill() {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return // it has ended
	}
	defer unix.Close(fd)
	now, ok := readProcess(p.pid)
	if ok && now.start == p.start && (now.parent == p.parent || now.parent == unix.Getpid()) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	}
}

// memory returns how many bytes processes have resident together. What they share is told apart only if they might have
// more than bound, because that takes the kernel longer.
func memory(list []process, bound int64) int64 {
	var all int64
	for _, p := range list {
		all += p.resident
	}
	if all <= bound {
		return all
	}
	all = 0
	for _, p := range list {
		all += p.proportional()
	}
	return all
}

// proportional returns the resident bytes of a process, those that it shares divided by how many share them.
func (p process) proportional() int64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/smaps_rollup")
	if err != nil {
		return p.resident
	}
	_, rest, _ := bytes.Cut(data, []byte("\nPss:"))
	line, _, _ := bytes.Cut(rest, []byte(" kB"))
	kilobytes, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
	if err != nil {
		return p.resident
	}
	return kilobytes << 10
}

// run runs a command to its end, or until the gateway does not want it any more, and returns once nothing of it is
// left.
func (s *service) run(r request, files []*os.File) answer {
	s.starter.begin(r)
	defer s.starter.end()
	defer s.temp.clean()
	main, err := s.start(r, files)
	if err != nil {
		return answer{NoProgram: isNoProgram(err), Error: err.Error()}
	}
	t := tree{starter: &s.starter, main: main}
	return t.wait(r)
}

// start starts a command and closes its files here.
func (s *service) start(r request, files []*os.File) (int, error) {
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	dir, err := s.temp.prepare(r, files[fdWorkspace])
	if err != nil {
		return 0, err
	}
	r.Env = slices.DeleteFunc(r.Env, func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") })
	r.Env = append(r.Env, "TMPDIR="+dir)
	if err := files[fdDir].Chdir(); err != nil {
		return 0, err
	}
	defer os.Chdir("/")
	return s.starter.start(r, files)
}
