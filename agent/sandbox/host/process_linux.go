package host

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// process is the state of a process, as read from /proc.
type process struct {
	pid, parent, threads int
	start                int   // in clock ticks since the machine started
	resident             int64 // bytes
}

// readProcess reads the state of a process from /proc. It returns false if the process has ended.
func readProcess(pid int) (process, bool) {
	// Package os takes three times as long, and killing must be faster than forking.
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

// parseStat parses /proc/PID/stat. The program's name, in parentheses, may contain any bytes.
func parseStat(pid int, data []byte) (process, bool) {
	_, rest, ok := bytes.Cut(data[max(0, bytes.LastIndexByte(data, ')')):], []byte(") "))
	fields := bytes.Fields(rest)
	if !ok || len(fields) < 22 {
		return process{}, false
	}
	number := func(i int) int { // fields as numbered in proc(5); the first two are pid and name
		n, _ := strconv.Atoi(string(fields[i-3]))
		return n
	}
	return process{
		pid: pid, parent: number(4), threads: number(20), start: number(22),
		resident: int64(number(24)) * int64(os.Getpagesize()),
	}, true
}

// descendants returns all descendants of this process.
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

// kill kills a process that is not a child of this one. Its pid may have been reused, so kill opens a pidfd first, and
// then checks the process again.
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

// memory returns the total resident memory of processes, in bytes. It accounts for shared memory only if the plain sum
// exceeds bound, because that costs the kernel more time.
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

// proportional returns the proportional set size (PSS) of a process, in bytes.
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

// run runs a command until it ends or the gateway cancels it. It returns when no process of it is left.
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

// start starts a command, and closes its descriptors in this process.
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
