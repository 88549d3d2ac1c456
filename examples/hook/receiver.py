#!/usr/bin/env python3
"""A hook that masks card numbers in results and cancels deletions. Needs only Python 3.9 or later.
Run: HOOK_SECRET=whsec_… python3 receiver.py 127.0.0.1 9000"""
import base64, hashlib, hmac, json, os, re, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = base64.b64decode(os.environ["HOOK_SECRET"].removeprefix("whsec_"))
CARD = re.compile(r"\d(?:[ _-]?\d){13,}")  # anywhere in a text, as in scan_4111111111111111.png

def clean(value):
    if isinstance(value, str):
        return CARD.sub("[card]", value)
    if isinstance(value, (int, float)) and CARD.match(str(abs(value))):
        return "[card]"
    if isinstance(value, list):
        return [clean(v) for v in value]
    if isinstance(value, dict):
        return {clean(k): clean(v) for k, v in value.items()}
    return value

def decide(q):
    if q["type"] == "tool.call.before":
        if q["tool"].startswith("delete_"):
            return {"decision": "cancel", "reason": "nothing is deleted here"}
        return {"decision": "continue"}
    result = clean(q["result"])  # text, structured output, names and types of parts
    return {"decision": "modify", "result": result} if result != q["result"] else {"decision": "continue"}

class Hook(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        stamp = self.headers.get("webhook-timestamp", "0")
        signed = f"{self.headers['webhook-id']}.{stamp}.".encode() + body
        want = "v1," + base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        good = hmac.compare_digest(want, self.headers.get("webhook-signature", ""))
        good = good and abs(time.time() - int(stamp)) < 300
        answer = json.dumps(decide(json.loads(body))).encode() if good else b""
        self.send_response(200 if good else 401)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

if __name__ == "__main__":
    ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Hook).serve_forever()
