// The page's policy of trusted types for scripts: what may become one is a file of this build.

interface Policy {
  createScriptURL(url: string): string;
}

interface Policies {
  createPolicy(name: string, rules: Policy): Policy;
}

const ours = /^\/(sw\.js|assets\/[\w.-]+\.js)$/;

const rules: Policy = {
  createScriptURL: (url) => {
    if (!ours.test(url)) throw new TypeError("no script of this page");
    return url;
  },
};

const { trustedTypes } = globalThis as { trustedTypes?: Policies };
const policy = trustedTypes?.createPolicy("farhand", rules) ?? rules;

/** scriptURL returns an address that browsers take for a worker. */
export const scriptURL = (url: string): string => policy.createScriptURL(url);
