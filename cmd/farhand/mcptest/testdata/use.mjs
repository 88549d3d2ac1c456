// What a client does with a device, and prints: lists its tools, calls them, hears how far a call is, cancels one, and
// sees the device leave.
import { once } from 'node:events';

const text = result => (result.isError ? 'error ' : '') + result.content.map(c => c.text).join('');

export async function use({ list, call, changed }) {
  const names = async () => console.log(["tools", ...(await list()).map(tool => tool.name)].join(" "));
  await names();
  for (let n = 0; n < 9; n++) console.log('echo', text(await call('echo', { n })));
  console.log('slow', text(await call('slow', {}, {
    onprogress: p => console.log('progress', p.progress, p.total, p.message),
  })));
  const abort = new AbortController();
  try {
    const options = { signal: abort.signal, onprogress: () => abort.abort('enough') };
    console.log('hold', text(await call('hold', {}, options)));
  } catch (error) {
    console.log('cancelled', abort.signal.aborted);
  }
  const news = changed?.();
  console.log('ready'); // for the device to leave
  if (news) console.log('changed', (await news).length);
  else {
    await once(process.stdin, 'data'); // it has left
    process.stdin.destroy();
  }
  await names();
}
