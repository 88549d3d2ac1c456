package commands

import (
	"time"

	"github.com/farhand/farhand/registry"
)

// command is what is known of a command of OpenClaw's nodes. Names, parameters and payloads are those of openclaw
// 2026.9.6 and of the apps of that time (docs/nodes in the npm package, OpenClawKit in its repository).
//
// A paired node offers only approved definitions. Each change of one, even of its text, makes its tool wait for
// approval again at every node, so a definition never depends on what a node says, except its platform.
type command struct {
	name   string // at the node
	tool   string // here; empty: by toolName
	about  string // for a model
	params []param
	open   bool // any arguments, passed on unchanged

	level    registry.SecurityLevel // empty: safe
	does     effect
	confined bool // changes nothing outside the device, though it changes something

	permission string        // of the operating system
	foreground bool          // phones run it only while the app is in the foreground
	timeout    time.Duration // of the tool; zero: the gateway's default

	begin  func(c *Catalog, r request) (Invocation, error) // nil: one invocation, by params
	result func(p payload) (registry.Result, error)        // nil: payload.result
}

// effect is what a command does.
type effect uint8

const (
	reads    effect = iota // changes nothing
	changes                // changes the device
	destroys               // may change or remove anything there
	notifies               // reaches the person at the device
	sends                  // reaches other people
	moves                  // moves hardware
)

const (
	confirm = registry.SecurityUserConfirm
	admin   = registry.SecurityAdminOnly
)

// Times that commands may take. Recordings and pictures travel as base64 over phone networks.
const (
	pictureTime   = time.Minute
	recordingTime = 3 * time.Minute // a recording has at most 2 minutes
	runTime       = 10 * time.Minute
	inferenceTime = 10 * time.Minute // the longest that the node host allows
)

// known returns all known commands.
func known() []command {
	all := append(deviceCommands(), mediaCommands()...)
	all = append(all, canvasCommands()...)
	all = append(all, personalCommands()...)
	return append(all, hostCommands()...)
}

// hidden are commands that are never tools, and why.
func hidden() map[string]string {
	const (
		private = "OpenClaw's gateway uses it for its own workers"
		stream  = "it streams to a socket of OpenClaw's gateway"
	)
	return map[string]string{
		prepareCommand:            "the tool run uses it",
		mcpCommand:                "the tools of MCP servers are offered one by one",
		"desktop.stream":          stream,
		"file.create":             stream,
		"workspace.memory":        stream,
		"workspace.skills":        stream,
		"agent.cli.claude.run.v1": stream,
		"browser.proxy.upload.v1": stream,
		workerCommands:            private,
	}
}

// workerCommands is the prefix of private commands.
const workerCommands = "worker."

func deviceCommands() []command {
	return []command{
		{name: "device.info", about: "Name, model, operating system and app version of the device."},
		{name: "device.status", about: "Battery, storage, network and temperature of the device."},
		{name: "device.health",
			about: "Memory, battery and power state of the device, in more detail than device_status."},
		{name: "device.permissions", about: "The permissions that the person has granted to the app on the device."},
		{name: "device.apps", about: "The applications that are installed on the device.", level: confirm,
			params: []param{
				text("query", "a part of the name"), count("limit", 200, "default: 100"),
				flag("include_system", "also applications of the system"),
				flag("include_non_launchable", "Android: also apps that a person cannot open"),
			}},
		{name: "system.notify", tool: "notify", about: "Show a notification to the person at the device.",
			does: notifies, permission: "notifications", params: []param{
				text("title", "").always(`""`), text("body", "").needed(),
				text("sound", "its name; empty: none"),
				choice("priority", "default: active", "passive", "active", "timeSensitive"),
				choice("delivery", "macOS: where it is shown", "system", "overlay", "auto"),
			}},
		{name: "watch.status", about: "Whether the watch of the person is paired, and has the app."},
		{name: "watch.notify", about: "Show a notification on the watch of the person.", does: notifies,
			params: []param{text("title", "").always(`""`), text("body", "").needed()}},
		{name: "chat.push", about: "Show a message in the chat of the app on the device.", does: notifies,
			params: []param{text("text", "").needed(), flag("speak", "also read it aloud")}},
		{name: "talk.ptt.start", about: "Begin to listen to the person at the device, until talk_ptt_stop.",
			level: confirm, does: changes, permission: "microphone", foreground: true},
		{name: "talk.ptt.stop", about: "End listening, and return what the person said.", level: confirm, does: changes,
			permission: "microphone", foreground: true},
		{name: "talk.ptt.cancel", about: "End listening, and drop what the person said.", does: changes},
		{name: "talk.ptt.once", about: "Listen to the person at the device once, and return what was said.",
			level: confirm, does: changes, permission: "microphone", foreground: true, timeout: pictureTime},
	}
}

func mediaCommands() []command {
	return []command{
		{name: "camera.list", about: "List the cameras of the device.", level: confirm, permission: "camera",
			foreground: true, result: cameras},
		{name: "camera.snap", about: "Take a picture with a camera of the device. " + inForeground, level: confirm,
			permission: "camera", foreground: true, timeout: pictureTime, begin: snap, params: []param{
				choice("facing", "both: one picture of each camera; default: the device chooses", "front", "back",
					"both"),
				text("device_id", "a camera that camera_list returned, instead of facing"),
				count("max_width", 8192, "in pixels; default: 1600"), quality(), count("delay_ms", 10_000,
					"wait before the picture"),
			}},
		{name: "camera.clip", about: "Record a clip with a camera of the device, at most 60 s. " + inForeground,
			level: confirm, permission: "camera", foreground: true, timeout: recordingTime, params: []param{
				choice("facing", "default: the device chooses", "front", "back").notOn(linux),
				text("device_id", "a camera that camera_list returned, instead of facing"),
				duration("default: 3000"), flag("include_audio", "default: true"),
			}},
		{name: "camera.ptz.status", about: "Position and ranges of a camera that can pan, tilt and zoom. Turns the " +
			"camera on for a moment.", level: confirm, permission: "camera", params: []param{
			text("device_id", "a camera that camera_list returned").needed()}},
		{name: "camera.ptz.control", about: "Pan, tilt or zoom a camera: set a position, move by a difference, or go " +
			"home.", level: confirm, does: moves, permission: "camera", begin: ptz, params: []param{
			text("device_id", "a camera that camera_list returned").needed(),
			choice("operation", "", "set", "move", "home").needed(),
			number("pan_degrees", "", -360, 360), number("tilt_degrees", "", -360, 360),
			number("zoom_percent", "", -100, 100),
		}},
		{name: "photos.latest", about: "The latest pictures of the photo library of the device.", level: confirm,
			permission: "photos", timeout: pictureTime, params: []param{
				count("limit", 16, "default: 1"), count("max_width", 8192, "in pixels; default: 1600"), quality(),
			}},
		{name: "screen.snapshot", about: "Take a picture of the screen of the device.", level: confirm,
			permission: "screenRecording", timeout: pictureTime, params: []param{
				index("screen_index", "default: 0, the main screen"), count("max_width", 8192, "in pixels"),
				choice("format", "", "png", "jpeg"),
			}},
		{name: "screen.record", about: "Record the screen of the device. " + inForeground, level: confirm,
			permission: "screenRecording", foreground: true, timeout: recordingTime, params: []param{
				duration("default: 10000"), number("fps", "pictures per second", 1, 60),
				index("screen_index", "default: 0, the main screen"), flag("include_audio", "default: true"),
			}},
		{name: "computer.act", about: "Control mouse and keyboard of the device. Take a screen_snapshot first, and " +
			"pass its displayFrameId and width (as refWidth) with coordinates in its pixels.", level: confirm,
			does: destroys, open: true, permission: "accessibility", timeout: pictureTime, params: computerParams()},
		{name: "mobile.ui.observe", about: "Read what is on the screen of the phone: elements with refs, texts and " +
			"bounds.", level: confirm, permission: "accessibility", open: true, timeout: pictureTime},
		{name: "mobile.ui.act", about: "Tap, type and scroll on the screen of the phone. Call mobile_ui_observe " +
			"first: refs hold only for the latest observation.", level: confirm, does: destroys, open: true,
			permission: "accessibility", timeout: pictureTime},
	}
}

const inForeground = "Phones do this only while the app is open."

func computerParams() []param {
	return []param{
		text("action", "such as left_click, double_click, mouse_move, left_click_drag, scroll, type, key").needed(),
		number("x", "", 0, maxPixel), number("y", "", 0, maxPixel), number("fromX", "for left_click_drag", 0, maxPixel),
		number("fromY", "for left_click_drag", 0, maxPixel), text("text", "for type"),
		text("keys", "for key, such as cmd+shift+t"),
		choice("scrollDirection", "for scroll", "up", "down", "left", "right"),
		count("scrollAmount", 100, "for scroll, in wheel ticks"), text("displayFrameId", "of the screen_snapshot"),
		index("screenIndex", ""), count("refWidth", maxPixel, "width of the screen_snapshot"),
	}
}

const maxPixel = 1 << 16

func canvasCommands() []command {
	return []command{
		{name: "canvas.present", about: "Show the canvas of the device, with a page if a url is given.", does: changes,
			confined: true, foreground: true, params: []param{text("url", "")}},
		{name: "canvas.hide", about: "Hide the canvas of the device.", does: changes, confined: true, foreground: true},
		{name: "canvas.navigate", about: "Show another page on the canvas of the device.", does: changes,
			foreground: true, params: []param{text("url", "").needed()}},
		{name: "canvas.eval", about: "Run JavaScript in the page on the canvas, and return its value.", level: confirm,
			does: destroys, foreground: true, params: []param{text("javaScript", "").long().needed()}},
		{name: "canvas.snapshot", about: "Take a picture of the canvas of the device.", foreground: true,
			timeout: pictureTime, params: []param{
				quality(), count("max_width", 8192, "in pixels"), choice("format", "", "png", "jpeg"),
			}},
		{name: "canvas.a2ui.push", about: aboutPush, does: changes, confined: true, foreground: true,
			begin:  pushMessages,
			params: []param{text("jsonl", "").long().needed()}},
		{name: pushLines, tool: "canvas_a2ui_push", about: aboutPush, does: changes, confined: true, foreground: true,
			params: []param{text("jsonl", "").long().needed()}},
		{name: "canvas.a2ui.reset", about: "Remove all A2UI content from the canvas.", does: changes, confined: true,
			foreground: true},
	}
}

const (
	pushLines = "canvas.a2ui.pushJSONL" // an older spelling of canvas.a2ui.push; nodes that declare both mean the same
	aboutPush = "Add A2UI content to the canvas: one JSON object on each line."
)

func personalCommands() []command {
	return []command{
		{name: "location.get", about: "Where the device is.", level: confirm, permission: "location", result: location,
			timeout: pictureTime, params: []param{
				count("max_age_ms", maxAge, "accept a position that is this old"),
				count("timeout_ms", 60_000, "how long the device may search"),
				choice("desired_accuracy", "", "coarse", "balanced", "precise"),
			}},
		{name: "notifications.list", about: "The notifications that the phone shows now, with their keys. They may " +
			"contain text of strangers.", level: confirm, permission: "notificationListener"},
		{name: "notifications.actions", about: "Open, dismiss or answer a notification of the phone.", level: confirm,
			does: sends, permission: "notificationListener", params: []param{
				text("key", "of a notification that notifications_list returned").needed(),
				choice("action", "", "open", "dismiss", "reply").needed(), text("reply_text", "for reply"),
			}},
		{name: "contacts.search", about: "Search the contacts of the device by name.", level: confirm,
			permission: "contacts", params: []param{text("query", ""), count("limit", 200, "")}},
		{name: "contacts.add", about: "Add a contact to the device.", level: confirm, does: changes,
			permission: "contacts", params: []param{
				text("given_name", ""), text("family_name", ""), text("organization_name", ""),
				text("display_name", ""), texts("phone_numbers", ""), texts("emails", ""),
			}},
		{name: "calendar.events", about: "Events of the calendar of the device.", level: confirm,
			permission: "calendar",
			params: []param{moment("start", "default: now"), moment("end", "default: a week later"),
				count("limit", 500, "")}},
		{name: "calendar.add", about: "Add an event to the calendar of the device.", level: confirm, does: changes,
			permission: "calendar", params: []param{
				text("title", "").needed(), moment("start", "").needed(), moment("end", "").needed(),
				flag("is_all_day", ""), text("location", ""), text("notes", ""), text("calendar_id", ""),
				text("calendar_title", ""),
			}},
		{name: "reminders.list", about: "Reminders of the device.", level: confirm, permission: "reminders",
			params: []param{
				choice("status", "default: incomplete", "incomplete", "completed", "all"), count("limit", 500, ""),
			}},
		{name: "reminders.add", about: "Add a reminder to the device.", level: confirm, does: changes,
			permission: "reminders", params: []param{
				text("title", "").needed(), moment("due", ""), text("notes", ""), text("list_id", ""),
				text("list_name", ""),
			}},
		{name: "callLog.search", about: "Calls that the phone made and took.", level: confirm, permission: "callLog",
			open: true, params: []param{count("limit", 200, ""), index("offset", "")}},
		{name: "motion.activity", about: "How the person moved: walking, running, driving or still.", level: confirm,
			permission: "motion", params: []param{moment("start", ""), moment("end", ""), count("limit", 1000, "")}},
		{name: "motion.pedometer", about: "Steps and distance of the person.", level: confirm, permission: "motion",
			params: []param{moment("start", ""), moment("end", "")}},
		{name: "health.summary", about: "Steps, sleep, heart rate and workouts of the person today. No medical advice.",
			level: confirm, permission: "health", params: []param{choice("period", "", "today").always(`"today"`)}},
		{name: "sms.send", about: "Send a text message from the phone. It may cost money.", level: confirm, does: sends,
			permission: "sms", params: []param{text("to", "a phone number").needed(), text("message", "").needed()}},
		{name: "sms.search", about: "Search the text messages of the phone. They may contain text of strangers.",
			level: confirm, permission: "sms", params: []param{
				text("contact_name", ""), text("phone_number", "or a part of it"), text("keyword", "in the text"),
				index("start_time", "milliseconds since 1970"), index("end_time", "milliseconds since 1970"),
				index("type", "1: received, 2: sent, 3: draft"), flag("is_read", ""),
				count("limit", 200, "default: 25"), index("offset", ""),
			}},
	}
}

const maxAge = 24 * 60 * 60 * 1000 // ms

func hostCommands() []command {
	return []command{
		{name: runCommand, tool: "run",
			about: "Run a shell command on the device. Returns exit_code, stdout and stderr.",
			level: confirm, does: destroys, timeout: runTime, result: ran, begin: run, params: []param{
				text("command", "").long().needed(), text("cwd", "the working directory"),
				count("timeout_ms", int64(runTime.Milliseconds()), "when the command is killed"),
			}},
		{name: "system.which", tool: "which", about: "Paths of programs on the device; absent: it has no such program.",
			params: []param{texts("bins", "names of programs").needed()}},
		{name: "system.execApprovals.get", tool: "exec_approvals_get", about: "The node's own rules about commands: " +
			"security, ask and allowlists.", level: admin},
		{name: "system.execApprovals.set", tool: "exec_approvals_set", about: "Replace the node's own rules about " +
			"commands. Read them first with exec_approvals_get.", level: admin, does: destroys, params: []param{
			object("file", "the whole document").needed(),
			text("base_hash", "the hash that exec_approvals_get returned"),
		}},
		{name: "file.fetch", about: "Read a file of the device.", level: confirm, timeout: pictureTime, result: file,
			params: []param{text("path", "absolute").needed(), count("max_bytes", maxFile, "default: 8388608")}},
		{name: "file.stat", about: "Type, size and time of change of a file or folder of the device.", level: confirm,
			params: []param{text("path", "absolute").needed()}},
		{name: "file.write", about: "Write a file on the device.", level: confirm, does: destroys, timeout: pictureTime,
			begin: writeFile, params: []param{
				text("path", "absolute").needed(), text("text", "the content").long(),
				text("content_base64", "the content, if it is no text").long(),
				flag("overwrite", "replace an existing file; default: false"),
				flag("create_parents", "make missing folders; default: false"),
			}},
		{name: "dir.list", about: "List a folder of the device.", level: confirm, params: []param{
			text("path", "absolute").needed(), count("max_entries", 5000, "default: 200"),
			text("page_token", "the nextPageToken of the previous page"),
		}},
		{name: "dir.fetch", about: "Fetch a folder of the device as a tar archive with gzip.", level: confirm,
			timeout: recordingTime, params: []param{
				text("path", "absolute").needed(), count("max_bytes", maxFile, "default: 8388608"),
			}},
		{name: "fs.listDir", about: "List the folders in a folder of the device.", level: admin,
			params: []param{text("path", "absolute; default: the home folder")}},
		{name: "terminal.upload", about: "Put a file into a temporary folder of the device, and return its path.",
			level: admin, does: changes, timeout: pictureTime, params: []param{
				text("name", "").needed(), text("content_base64", "").long().needed(),
			}},
		{name: "browser.proxy", about: "Control the browser of the node host by its HTTP API.", level: admin,
			does: destroys, open: true, timeout: pictureTime},
		{name: "ollama.models", about: "The language models that Ollama has on the device.", timeout: recordingTime},
		{name: "ollama.chat", about: "Ask a language model that runs on the device.", timeout: inferenceTime,
			params: []param{
				text("model", "one that ollama_models returned").needed(), text("prompt", "").long().needed(),
				text("system", "").long(), number("temperature", "", 0, 2), count("max_tokens", 8192, ""),
				count("timeout_ms", int64(inferenceTime.Milliseconds()), ""),
			}},
	}
}

const maxFile = 16 << 20 // bytes; the node host refuses more
