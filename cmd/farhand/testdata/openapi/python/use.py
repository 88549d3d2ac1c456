"""What an application would write against the client made from the OpenAPI document."""

import sys

sys.path.insert(0, sys.argv[1])

from farhand_client import AuthenticatedClient
from farhand_client.api.calls import call_tool
from farhand_client.api.tools import list_tools
from farhand_client.models import CallAnswer, CallRequest, CallRequestArgs, Problem, ToolList

client = AuthenticatedClient(base_url=sys.argv[2], token=sys.argv[3])

tools = list_tools.sync(client=client)
assert isinstance(tools, ToolList), tools
print([row.name for row in tools.tools])

args = CallRequestArgs.from_dict({"text": "from python"})
answer = call_tool.sync("echo", client=client, body=CallRequest(args=args))
assert isinstance(answer, CallAnswer), answer
assert answer.success and "from python" in answer.output, answer

refused = call_tool.sync("nothing", client=client, body=CallRequest())
assert isinstance(refused, Problem) and refused.code == "tool_not_found", refused
print("ok")
