package desktop

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/farhand/farhand/ws/client"
)

// speechTime is the longest speech: 4,096 characters at half the rate.
const speechTime = 15 * time.Minute

// normalRate is how many words a minute a voice says by default.
const normalRate = 175

type speech struct {
	Text, Language string
	Rate           float64 // zero: 1
}

func (s speech) rate() float64 {
	if s.Rate == 0 {
		return 1
	}
	return s.Rate
}

func (d *Desktop) speakWay(context.Context) way {
	switch d.system {
	case "darwin":
		return d.speaking("say", d.say)
	case "windows":
		return d.speaking(powershell, func(ctx context.Context, _ string, s speech) error {
			_, err := d.powershellFor(ctx, speechTime, "speak", struct {
				Text, Language string
				Rate           int // -10 to 10
			}{s.Text, s.Language, int(math.Round(10 * math.Log2(s.rate())))})
			return err
		})
	}
	if !d.plays() {
		return lacks("this computer plays no sound")
	}
	if d.look("spd-say") != "" {
		return d.speaking("spd-say", d.dispatchSpeech)
	}
	name, _ := d.first("espeak-ng", "espeak")
	if name == "" {
		return lacks("spd-say and espeak-ng are missing: install speech-dispatcher or espeak-ng")
	}
	return d.speaking(name, func(ctx context.Context, path string, s speech) error {
		args := []string{"-s", fmt.Sprint(int(normalRate * s.rate())), "--stdin"}
		if s.Language != "" {
			args = append(args, "-v", strings.ToLower(s.Language))
		}
		_, err := d.run(ctx, program{path: path, args: args, stdin: s.Text, time: speechTime})
		return err
	})
}

// speaking returns a way to speak with a program. One text is spoken at a time.
func (d *Desktop) speaking(name string, say func(ctx context.Context, path string, s speech) error) way {
	path := d.look(name)
	if path == "" {
		return lacks("%s is missing", name)
	}
	return by(name, func(ctx context.Context, _ client.Call, s speech) (any, error) {
		if s.Language != "" && !language.MatchString(s.Language) {
			return nil, errors.New("the language must look like en-GB")
		}
		release, err := d.speaker.take(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
		if err := say(ctx, path, s); err != nil {
			return nil, err
		}
		return "spoken", nil
	})
}

// language is a tag of BCP 47, as far as voices have one. It does not look like an option.
var language = regexp.MustCompile(`^[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*$`)

// say speaks with the program of macOS.
func (d *Desktop) say(ctx context.Context, path string, s speech) error {
	args := []string{"-r", fmt.Sprint(int(normalRate * s.rate())), "-f", "-"}
	if s.Language != "" {
		voices, err := d.run(ctx, program{path: path, args: []string{"-v", "?"}})
		if err != nil {
			return err
		}
		voice := voiceOf(string(voices), s.Language)
		if voice == "" {
			return fmt.Errorf("no voice speaks %s", s.Language)
		}
		args = append(args, "-v", voice)
	}
	_, err := d.run(ctx, program{path: path, args: args, stdin: s.Text, time: speechTime})
	return err
}

// listedVoice is a line of say -v '?': name, language and an example.
var listedVoice = regexp.MustCompile(`^(.+?)\s+([a-z]{2,3}_\S+)\s+#`)

// voiceOf returns the first voice of a language in the list of say.
func voiceOf(list, language string) string {
	wanted := strings.ToLower(strings.ReplaceAll(language, "-", "_"))
	for line := range strings.Lines(list) {
		m := listedVoice.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		if speaks := strings.ToLower(m[2]); speaks == wanted || strings.HasPrefix(speaks, wanted+"_") {
			return m[1]
		}
	}
	return ""
}

// dispatchSpeech speaks with the voice that the person has chosen. The service speaks, so ending the command does not
// stop it.
func (d *Desktop) dispatchSpeech(ctx context.Context, path string, s speech) error {
	args := []string{"--wait", "--rate", fmt.Sprint(int(100 * math.Log2(s.rate())))}
	if s.Language != "" {
		args = append(args, "--language", strings.ToLower(s.Language))
	}
	_, err := d.run(ctx, program{path: path, args: append(args, "--", s.Text), time: speechTime})
	if ctx.Err() != nil {
		_, _ = d.run(context.WithoutCancel(ctx), program{path: path, args: []string{"--cancel"}})
	}
	return err
}

// plays reports whether this machine, which is Linux, has something that plays sound.
func (d *Desktop) plays() bool {
	if d.vars["PULSE_SERVER"] != "" || d.vars["ALSA_CONFIG_PATH"] != "" {
		return true // the person has set it up
	}
	if runtime := d.vars["XDG_RUNTIME_DIR"]; runtime != "" {
		for _, socket := range []string{"pulse/native", "pipewire-0"} {
			if _, err := os.Stat(filepath.Join(runtime, socket)); err == nil {
				return true
			}
		}
	}
	cards, _ := os.ReadFile("/proc/asound/pcm")
	return strings.Contains(string(cards), "playback")
}

// soundInput returns the microphone as ffmpeg reads it.
func (d *Desktop) soundInput(ctx context.Context) (in input, missing string) {
	if d.look("ffmpeg") == "" {
		return in, noFFmpeg
	}
	if d.cfg.Microphone != "" {
		in, _ = parseInput(d.cfg.Microphone) // New has checked it
		return in, ""
	}
	switch d.system {
	case "darwin":
		for _, m := range d.listed(ctx, "avfoundation", "audio") {
			return input{"avfoundation", "none:" + m.id, nil}, ""
		}
	case "windows":
		for _, m := range d.listed(ctx, "dshow", "audio") {
			return input{"dshow", "audio=" + m.name, nil}, ""
		}
	default:
		for _, format := range []string{"pulse", "alsa"} {
			out, _ := d.run(ctx, program{path: d.look("ffmpeg"), args: []string{"-hide_banner", "-sources", format}})
			if hasSource(string(out)) {
				return input{format, "default", nil}, ""
			}
		}
	}
	return in, "no microphone was found"
}

// source is a line of a list of sources. The default has a star.
var source = regexp.MustCompile(`^[* ] (\S+) \[`)

// hasSource reports whether a list of ffmpeg has a source that is more than what the computer itself plays.
func hasSource(list string) bool {
	for line := range strings.Lines(list) {
		if m := source.FindStringSubmatch(line); m != nil && m[1] != "null" && !strings.HasSuffix(m[1], ".monitor") {
			return true
		}
	}
	return false
}

func (d *Desktop) audioClipWay(ctx context.Context) way {
	if _, missing := d.soundInput(ctx); missing != "" {
		return lacks("%s", missing)
	}
	return by("ffmpeg", func(ctx context.Context, call client.Call, args lasting) (any, error) {
		release, err := d.microphone.take(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
		in, missing := d.soundInput(ctx)
		if missing != "" {
			return nil, errors.New(missing)
		}
		r := recording{inputs: []input{in}, name: "audio.m4a", ms: args.DurationMS}
		data, err := d.record(ctx, call, r)
		if err != nil {
			return nil, err
		}
		sound, err := part(ctx, call, client.Part{
			Type: client.PartAudio, MIMEType: "audio/mp4", Name: "audio.mp4", Data: data,
		})
		if err != nil {
			return nil, err
		}
		output := fmt.Sprintf("A recording of %s seconds.", seconds(r.length().Milliseconds()))
		return client.Result{Output: output, Parts: []client.Part{sound}}, nil
	})
}
