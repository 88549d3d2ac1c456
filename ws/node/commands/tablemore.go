package commands

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
				text("given_name", ""), text("family_name", ""), text("organization_name", ""), text("display_name", ""),
				texts("phone_numbers", ""), texts("emails", ""),
			}},
		{name: "calendar.events", about: "Events of the calendar of the device.", level: confirm, permission: "calendar",
			params: []param{moment("start", "default: now"), moment("end", "default: a week later"), count("limit", 500, "")}},
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
				index("type", "1: received, 2: sent, 3: draft"), flag("is_read", ""), count("limit", 200, "default: 25"),
				index("offset", ""),
			}},
	}
}

const maxAge = 24 * 60 * 60 * 1000 // ms

func hostCommands() []command {
	return []command{
		{name: runCommand, tool: "run", about: "Run a shell command on the device. Returns exit_code, stdout and stderr.",
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
			object("file", "the whole document").needed(), text("base_hash", "the hash that exec_approvals_get returned"),
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
