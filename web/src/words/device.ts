// Every text of the device page. A translation is another file of this form.

/** Texts about one tool. Question and action are what the person sees before the browser may do it. */
export interface ToolWords {
  title: string;
  about: string;
  /** While it runs. */
  running: string;
  question?: string;
  action?: string;
}

const tools: Record<string, ToolWords> = {
  ask_person: { title: "Ask you", about: "Questions with choices or a text field", running: "Asks you" },
  notify: {
    title: "Notifications", about: "Messages, also while you do something else", running: "Notifies you",
    question: "An agent wants to notify you. Your browser asks you once.", action: "Allow notifications",
  },
  show: { title: "Show", about: "A text, a picture or a place on this page", running: "Shows something" },
  open_url: {
    title: "Open links", about: "You decide about each one", running: "Wants to open a page",
    question: "An agent wants you to open this page.", action: "Open",
  },
  share: {
    title: "Share", about: "Hands a text or link to an app that you choose", running: "Wants to share",
    question: "An agent wants you to share this.", action: "Share…",
  },
  camera_snap: { title: "Take pictures", about: "With the front or back camera", running: "Takes a picture" },
  camera_clip: { title: "Record video", about: "Up to two minutes", running: "Records video" },
  camera_list: { title: "List cameras", about: "Which cameras there are", running: "Lists the cameras" },
  screen_record: {
    title: "Record the screen", about: "What you choose of it, up to two minutes", running: "Records the screen",
    question: "An agent wants to record your screen. You choose what it sees.", action: "Choose…",
  },
  microphone_level: { title: "Loudness", about: "How loud it is here, without recording", running: "Measures loudness" },
  audio_clip: { title: "Record sound", about: "Up to two minutes", running: "Records sound" },
  speak: {
    title: "Speak", about: "Says a text aloud", running: "Speaks", action: "Say it aloud",
  },
  listen: {
    title: "Listen", about: "Turns what you say into text; your browser may send it to its maker",
    running: "Listens to you",
  },
  location_get: { title: "Location", about: "Where this device is", running: "Gets the location" },
  motion: {
    title: "Motion", about: "Acceleration and orientation", running: "Watches the motion sensors",
    question: "An agent wants to use the motion sensors. Your browser asks you.", action: "Allow motion sensors",
  },
  battery: { title: "Battery", about: "Its charge", running: "Reads the battery" },
  clipboard_read: {
    title: "Read the clipboard", about: "What you copied last", running: "Reads the clipboard",
    question: "An agent wants to read the text on your clipboard.", action: "Paste it",
  },
  clipboard_write: {
    title: "Write the clipboard", about: "Replaces what you copied last", running: "Writes the clipboard",
    question: "An agent wants to put this on your clipboard.", action: "Copy it",
  },
  vibrate: { title: "Vibrate", about: "To get your attention", running: "Vibrates" },
  wake_lock: { title: "Keep the screen on", about: "While this page is visible", running: "Keeps the screen on" },
  canvas_present: { title: "Show the canvas", about: "A separate place where agents draw", running: "Shows the canvas" },
  canvas_hide: { title: "Hide the canvas", about: "Keeps what is on it", running: "Hides the canvas" },
  canvas_navigate: { title: "Web page on the canvas", about: "From other sites", running: "Loads a page on the canvas" },
  canvas_eval: {
    title: "Run code on the canvas", about: "Locked in: it cannot reach this page or your gateway",
    running: "Runs code on the canvas",
  },
  canvas_snapshot: { title: "Picture of the canvas", about: "Of what agents drew there", running: "Takes a picture of the canvas" },
  canvas_a2ui_push: { title: "Forms on the canvas", about: "Buttons, lists and fields in the A2UI format", running: "Draws on the canvas" },
  canvas_a2ui_reset: { title: "Clear the canvas", about: "Removes what agents drew", running: "Clears the canvas" },
};

export const words = {
  product: "Farhand",
  tools,
  groups: [
    { title: "You", tools: ["ask_person", "notify", "show", "open_url", "share"] },
    { title: "Camera and screen", tools: ["camera_snap", "camera_clip", "camera_list", "screen_record"] },
    { title: "Sound", tools: ["speak", "listen", "microphone_level", "audio_clip"] },
    { title: "Sensors", tools: ["location_get", "motion", "battery"] },
    { title: "This device", tools: ["vibrate", "wake_lock", "clipboard_read", "clipboard_write"] },
    {
      title: "Canvas",
      tools: [
        "canvas_present", "canvas_hide", "canvas_navigate", "canvas_eval", "canvas_snapshot", "canvas_a2ui_push",
        "canvas_a2ui_reset",
      ],
    },
  ],
  missing: {
    insecure: "Needs a secure page (https)",
    unknown: "This browser or device does not have it",
    denied: "You denied it. Allow it in the browser's settings for this page.",
  },
  welcome: {
    title: "Use this device with agents",
    text: "Agents can then ask you, take pictures, and use what you leave switched on. You see everything they do, and stop it with one tap.",
    name: "Name of this device",
    start: "Connect",
    trying: "Connecting…",
  },
  browsers: { unknown: "Browser", on: (browser: string, system: string) => `${browser} on ${system}` },
  pairing: {
    title: "Approve this device",
    text: "Enter this code where you administer the gateway:",
    console: "In the console, under Access:",
    terminal: "Or in a terminal:",
    qr: (url: string) => `QR code of ${url}`,
    left: (time: string) => `The code is valid for ${time}. A new one follows.`,
    waiting: "This page goes on by itself after the approval.",
    cancel: "Cancel",
    off: "Pairing is switched off on this gateway. Ask its administrator to switch it on (FARHAND_PAIRING=code).",
    rejected: "The request was rejected.",
  },
  state: {
    closed: "Stopped",
    connecting: "Connecting…",
    connected: "Connected",
    draining: "Moving to another pod…",
    waiting: "Reconnecting…",
    refused: "Not connected",
    elsewhere: "Connected in another tab",
    pairing: "Waits for approval",
    new: "Not connected",
  },
  stop: "Stop",
  stopAbout: "Ends what agents do here, and disconnects",
  start: "Start",
  stoppedText: "Agents cannot reach this device until you start again.",
  elsewhereText: "Another tab of this browser is connected as this device.",
  useHere: "Use this tab",
  offlineText: "The gateway cannot be reached. This page keeps trying.",
  revoked: "The gateway does not accept this device any more. Its credential was revoked or has expired.",
  ended: "An administrator ended this session, or took back the device's credential.",
  pairAgain: "Pair again",
  insecure: {
    title: "This page is not secure",
    text: "Browsers give camera, microphone, location, notifications and more only to pages with https. The rest works.",
  },
  untrusted: {
    title: "This browser may not trust the gateway's certificate",
    text: "This page cannot be installed, does not open without a network, and may be unable to notify you. The rest " +
      "works. The certificate is the likely cause: install it on this device, or use a gateway with a certificate of " +
      "a known authority. Browsers that block this page's storage do the same.",
  },
  background: "Keep this page open and visible. Phones put pages to sleep in the background, and agents cannot reach them then.",
  hidden: (time: string) => `The page was asleep or in the background for ${time}`,
  now: { title: "Now", none: "No agent does anything here at the moment." },
  prompts: {
    title: "Needs you",
    from: (tool: string) => `An agent · ${tool}`,
    approval: (tool: string) => `Allow “${tool}”?`,
    arguments: "What it wants exactly",
    answer: "Your answer",
    send: "Send",
    dismiss: "Not now",
    left: (time: string) => `${time} left`,
    decisions: { "allow-once": "Allow once", "allow-always": "Always allow this", deny: "Deny" },
    remarks: {
      long: "This is long. Read all of it.",
      multiline: "This has several lines.",
      hidden: "This has invisible characters.",
      foreign: "This has letters that look like others.",
    } as Record<string, string>,
  },
  shown: { title: "From an agent", clear: "Clear", map: "Open in a map app" },
  canvas: {
    title: "Canvas",
    hide: "Hide",
    about: "Agents draw here. It is locked in: it cannot see this page, your data or your gateway.",
    frame: "Canvas of the agents",
    taps: (name: string) => `You tapped “${name}” on the canvas`,
  },
  offered: {
    title: "What agents may use",
    count: (on: number, all: number) => `${on} of ${all}`,
    about: "Camera, microphone and the like are asked for by your browser when an agent first needs them.",
    confirm: "asks an approver",
    refused: (why: string) => `The gateway does not offer it: ${why}`,
  },
  log: {
    title: "Log",
    about: "Kept in this browser only",
    none: "What agents do here is written down here.",
    clear: "Clear",
    failed: "failed",
    picture: "The picture that was taken",
    connected: "Connected",
    resumed: "Connected again",
    lost: (why: string) => `Connection lost: ${why}`,
    stopped: "You pressed Stop",
    refused: (why: string) => `Refused: ${why}`,
  },
  awake: "The screen stays on",
  wake: {
    ask: "Agents reach this page only while it is open. Allow notifications, and one calls you when it is closed.",
    allow: "Allow",
    on: "Agents can call you when this page is closed",
  },
  duration: (seconds: number) =>
    seconds < 60 ? `${seconds} s` : seconds < 3600 ? `${Math.floor(seconds / 60)} min ${seconds % 60} s` : `${Math.floor(seconds / 3600)} h`,
};
