"""What an application would write against the Python client that openapi-generator makes."""

import importlib
import json
import pkgutil
import sys

sys.path.insert(0, sys.argv[1])

import openapi_client
from openapi_client import api as apis

for module in pkgutil.walk_packages(openapi_client.__path__, "openapi_client."):
    importlib.import_module(module.name)

configuration = openapi_client.Configuration(host=sys.argv[2], access_token=sys.argv[3])
with openapi_client.ApiClient(configuration) as client:
    tools, calls = apis.ToolsApi(client), apis.CallsApi(client)
    rows = tools.list_tools(name="echo").tools
    assert rows[0].name == "echo" and rows[0].source == "phone", rows
    assert tools.list_tool_groups(name="echo").tools[0].sessions == 1
    assert tools.list_tools_for_open_ai(name="echo").tools[0].function.name == "echo"
    assert tools.list_tools_for_anthropic(name="echo").tools[0].input_schema["type"] == "object"
    assert tools.list_tools_for_mcp(name="echo").tools[0].input_schema["type"] == "object"

    request = openapi_client.CallRequest(args={"text": "from python"}, mode="async")
    record = calls.get_call(calls.call_tool("echo", call_request=request).call_id, wait_ms=20000)
    assert record.state == "succeeded" and "from python" in record.output, record
    assert record.timeline[0].at.tzinfo is not None, record
    answer = calls.call_tool("échö", call_request=openapi_client.CallRequest(args={"text": "é"}))
    assert answer.success and json.loads(answer.output) == {"text": "é"}, answer
    assert calls.list_calls(tool="echo").calls[0].call_id == record.call_id
    assert apis.SessionsApi(client).list_sessions().sessions[0].connected_at is not None
    try:
        calls.call_tool("nothing", call_request=openapi_client.CallRequest())
        raise AssertionError("a tool that is not there was called")
    except openapi_client.ApiException as e:
        assert e.status == 404 and e.data.code == "tool_not_found", e

event = openapi_client.TurnEvent.from_dict({"type": "thinking", "content": "hm"}).actual_instance
assert isinstance(event, openapi_client.TurnText), event
print("ok")
