package host

import (
	"os"
	"slices"
	"strings"
)

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
