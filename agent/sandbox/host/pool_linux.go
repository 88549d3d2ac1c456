package host

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// supervisorName is argv[0] of a supervisor. supervisorSocket is its descriptor of the connection to the gateway.
const (
	supervisorName   = "farhand-supervisor"
	supervisorSocket = 3
)

// supervisor is the gateway's handle of a supervisor process.
type supervisor struct {
	socket *net.UnixConn
	cmd    *exec.Cmd
	timer  *time.Timer // ends it when it is idle for too long

	workspace string // of its last command; may hold its temporary folder
}

// pool holds idle supervisors.
type pool struct {
	idle    int
	timeout time.Duration

	mu     sync.Mutex
	closed bool
	list   []*supervisor
	ending sync.WaitGroup // expired and abandoned supervisors
}

// acquire sends a request to a supervisor and returns it. It prefers an idle supervisor that last ran in the workspace.
func (p *pool) acquire(workspace string, message []byte, files []*os.File) (*supervisor, error) {
	for {
		s := p.pop(workspace)
		if s == nil {
			break
		}
		if s.send(message, files) == nil {
			return s, nil
		}
		s.end() // it was killed while idle
	}
	s, err := startSupervisor()
	if err != nil {
		return nil, err
	}
	s.workspace = workspace
	if err := s.send(message, files); err != nil {
		s.end()
		return nil, fmt.Errorf("the started supervisor does not answer: %w", err)
	}
	return s, nil
}

func (p *pool) pop(workspace string) *supervisor {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.list) == 0 {
		return nil
	}
	i := max(0, slices.IndexFunc(p.list, func(s *supervisor) bool { return s.workspace == workspace }))
	s := p.list[i]
	p.list = slices.Delete(p.list, i, i+1)
	s.timer.Stop() // if it fires anyway, it does not find s in the list
	s.workspace = workspace
	return s
}

// drop ends the idle supervisors that last ran in a workspace.
func (p *pool) drop(workspace string) {
	var list []*supervisor
	p.mu.Lock()
	p.list = slices.DeleteFunc(p.list, func(s *supervisor) bool {
		if s.workspace == workspace {
			list = append(list, s)
		}
		return s.workspace == workspace
	})
	p.mu.Unlock()
	for _, s := range list {
		s.timer.Stop()
		s.end()
	}
}

// release stores a supervisor for another command, or ends it if the pool is full.
func (p *pool) release(s *supervisor) {
	p.mu.Lock()
	full := p.closed || len(p.list) >= p.idle
	if !full {
		s.timer = time.AfterFunc(p.timeout, func() { p.expire(s) })
		p.list = append(p.list, s)
	}
	p.mu.Unlock()
	if full {
		s.end()
	}
}

// expire ends an idle supervisor after its timeout, unless it was taken meanwhile.
func (p *pool) expire(s *supervisor) {
	p.mu.Lock()
	i := slices.Index(p.list, s)
	if i < 0 {
		p.mu.Unlock()
		return
	}
	p.list = slices.Delete(p.list, i, i+1)
	p.ending.Add(1)
	p.mu.Unlock()
	defer p.ending.Done()
	s.end()
}

// close ends the idle supervisors. Supervisors that are put later end immediately.
func (p *pool) close() {
	p.mu.Lock()
	list := p.list
	p.closed, p.list = true, nil
	p.mu.Unlock()
	for _, s := range list {
		s.timer.Stop()
		s.end()
	}
	p.ending.Wait()
}

// startSupervisor starts this program again, as a supervisor. It gets no environment and no file except its socket.
func startSupervisor() (*supervisor, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "gateway"), os.NewFile(uintptr(pair[1]), "supervisor")
	defer ours.Close() // net.FileConn duplicates it
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{supervisorName}, Env: []string{}, Dir: "/",
		ExtraFiles:  []*os.File{theirs},                 // descriptor 3, supervisorSocket
		SysProcAttr: &syscall.SysProcAttr{Setsid: true}, // no signals from the gateway's terminal
	}
	if err := cmd.Start(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("start supervisor: %w", err)
	}
	return &supervisor{socket: conn.(*net.UnixConn), cmd: cmd}, nil
}

// send sends a request. Its first byte carries the descriptors.
func (s *supervisor) send(message []byte, files []*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd()) // makes it blocking, as programs expect of their output
	}
	if _, _, err := s.socket.WriteMsgUnix(message[:1], unix.UnixRights(fds...), nil); err != nil {
		return err
	}
	_, err := s.socket.Write(message[1:])
	return err
}

// cancel makes the supervisor kill its command, answer, and exit. Reading the answer fails after within.
func (s *supervisor) cancel(within time.Duration) {
	s.socket.CloseWrite()
	s.socket.SetReadDeadline(time.Now().Add(within))
}

// end ends a supervisor that runs no command.
func (s *supervisor) end() {
	s.socket.Close()
	s.cmd.Wait()
}

// abandon leaves a supervisor with processes that it could not kill yet. It ends when they have died.
func (p *pool) abandon(s *supervisor) {
	s.socket.Close()
	p.ending.Go(func() { s.cmd.Wait() })
}
