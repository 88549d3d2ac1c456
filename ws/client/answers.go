package client

// Bounds of what is remembered to answer repeated requests.
const (
	maxAnswers     = 1024
	maxAnswerBytes = 16 << 20
)

// answers keeps the latest answers by call id, each as the frame that was sent. It is not safe for concurrent use.
type answers struct {
	frames map[string][]byte
	order  []string // oldest first
	size   int      // bytes of frames
}

func (a *answers) get(id string) ([]byte, bool) {
	frame, ok := a.frames[id]
	return frame, ok
}

// put remembers the first answer of a call and forgets the oldest ones over the bounds.
func (a *answers) put(id string, frame []byte) {
	if _, there := a.frames[id]; there {
		return
	}
	if a.frames == nil {
		a.frames = make(map[string][]byte)
	}
	a.frames[id] = frame
	a.order = append(a.order, id)
	a.size += len(frame)
	for len(a.order) > maxAnswers || a.size > maxAnswerBytes {
		oldest := a.order[0]
		a.order = a.order[1:]
		a.size -= len(a.frames[oldest])
		delete(a.frames, oldest)
	}
}
