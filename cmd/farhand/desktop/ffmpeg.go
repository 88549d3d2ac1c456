package desktop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/farhand/farhand/ws/client"
)

const (
	defaultDuration = 10_000 // ms
	startTime       = 15 * time.Second
	longest         = 1920 // pixels of a picture's width
	frameRate       = "15" // per second, of recordings of the screen
)

// input is what ffmpeg reads, after -f and -i.
type input struct {
	format, name string
	options      []string // before -i
}

// parseInput parses FORMAT:INPUT.
func parseInput(text string) (in input, ok bool) {
	format, name, found := strings.Cut(text, ":")
	return input{format: format, name: name}, found && format != "" && name != ""
}

func (in input) args() []string {
	return append(append([]string{"-f", in.format}, in.options...), "-i", in.name)
}

// scaled makes pictures at most longest pixels wide, and their sides even, as encoders of video require.
var scaled = []string{"-vf", fmt.Sprintf("scale=w='trunc(min(%d,iw)/2)*2':h=-2", longest)}

// quiet are the options of every run of ffmpeg. It asks nothing, and prints errors only.
func quiet() []string { return []string{"-hide_banner", "-nostdin", "-loglevel", "error"} }

// still takes one picture as a JPEG. after is how long the input runs before: cameras find exposure and focus.
func (d *Desktop) still(ctx context.Context, in input, after time.Duration) ([]byte, error) {
	args := append(quiet(), in.args()...)
	if after > 0 {
		args = append(args, "-ss", seconds(after.Milliseconds()))
	}
	args = append(append(args, scaled...), "-frames:v", "1", "-q:v", "3", "-c:v", "mjpeg", "-f", "image2pipe", "pipe:1")
	data, err := d.run(ctx, program{path: d.look("ffmpeg"), args: args, limit: maxMedia, time: startTime})
	if err == nil && len(data) == 0 {
		err = fmt.Errorf("ffmpeg got no picture from %s", in.name)
	}
	return data, err
}

// recording is what is recorded, and into what.
type recording struct {
	inputs []input
	video  bool
	name   string // of the file
	ms     int64  // zero: defaultDuration
}

func (r recording) length() time.Duration {
	if r.ms <= 0 {
		return defaultDuration * time.Millisecond
	}
	return time.Duration(r.ms) * time.Millisecond
}

// record records for a while, and reports every second how far it is.
func (d *Desktop) record(ctx context.Context, call client.Call, r recording) (data []byte, err error) {
	length := r.length()
	args := append(quiet(), "-y")
	for _, in := range r.inputs {
		args = append(args, in.args()...)
	}
	args = append(args, "-t", seconds(length.Milliseconds()), "-fs", fmt.Sprint(maxMedia-maxMedia/8), "-b:a", "64k")
	if r.video {
		args = append(append(args, scaled...), "-pix_fmt", "yuv420p", "-b:v", "2M", "-movflags", "+faststart")
	} else {
		args = append(args, "-vn")
	}
	stop := follow(call, length)
	defer stop()
	err = inFolder(func(dir string) error {
		file := filepath.Join(dir, r.name)
		p := program{path: d.look("ffmpeg"), args: append(args, file), time: 2*length + startTime}
		if _, err := d.run(ctx, p); err != nil {
			return err
		}
		data, err = readBounded(file)
		return err
	})
	return data, err
}

// readBounded reads a file of at most maxMedia bytes.
func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the program wrote no file: %w", err)
	case info.Size() > maxMedia:
		return nil, errors.New("the file is too large")
	}
	return os.ReadFile(path)
}

// follow reports the progress of a recording until stop is called.
func follow(call client.Call, length time.Duration) (stop func()) {
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		began, ticker := time.Now(), time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				call.Progress(min(time.Since(began), length).Seconds(), length.Seconds(), "")
			case <-ended:
				return
			}
		}
	})
	return func() {
		close(ended)
		wg.Wait()
	}
}
