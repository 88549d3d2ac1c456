package host

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// maxMessage bounds a message between gateway and supervisor, in bytes. The kernel takes no longer arguments.
const maxMessage = 8 << 20

// request asks a supervisor to run a command. The folder it runs in, the workspace and the ends of its output travel
// beside it as descriptors, in the order of the constants below.
type request struct {
	Args []string `json:"args"`
	Env  []string `json:"env"`

	Workspace string `json:"workspace"` // for the program's own eyes: TMPDIR
	Landlock  bool   `json:"landlock"`
	Drop      bool   `json:"drop"` // to the user and group below
	UID       int    `json:"uid"`
	GID       int    `json:"gid"`
	Gateway   int    `json:"gateway"` // its process, which the command may not kill

	Memory    int64         `json:"memory"`
	Processes int           `json:"processes"`
	CPU       time.Duration `json:"cpu"`
	FileSize  int64         `json:"file_size"`

	Stdin bool `json:"stdin"` // there is a descriptor that the command reads
}

// The descriptors of a request. Only some have the last one.
const (
	fdDir = iota
	fdWorkspace
	fdStdout
	fdStderr
	fdCount
	fdStdin = fdCount
)

// stdin returns how many descriptors the request has besides those of all requests.
func (r *request) stdin() int {
	if r.Stdin {
		return 1
	}
	return 0
}

// answer says how a command ended, or why there is none.
type answer struct {
	Code      int    `json:"code"`
	Signal    string `json:"signal,omitempty"`
	NoProgram bool   `json:"no_program,omitempty"`
	Error     string `json:"error,omitempty"`
}

// frame returns a message with its length in front.
func frame(v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(body) > maxMessage {
		return nil, fmt.Errorf("the command and its environment have %d bytes; at most %d are possible",
			len(body), maxMessage)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...), nil
}

// readFrame reads a message. io.EOF: there is none any more.
func readFrame(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n > maxMessage {
		return errors.New("a message that is too long")
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return err
	}
	return json.Unmarshal(body, v)
}
