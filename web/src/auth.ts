// Sign-in by authorization code with PKCE, where the deployment has an issuer. Elsewhere nobody signs in here.

import type { UserManager } from "oidc-client-ts";

interface Config {
  sign_in: { issuer: string; client_id: string; scopes: string } | null;
}

let manager: UserManager | null = null;

/** Before anything else: reads what the deployment wants, and comes back from, or goes to, the issuer.
 *
 * Answers false where the browser is about to leave for the issuer. */
export async function begin(): Promise<boolean> {
  const answer = await fetch("config.json");
  if (!answer.ok) throw new Error("The page's configuration could not be read.");
  const { sign_in: wanted } = (await answer.json()) as Config;
  if (wanted === null) return true;
  const { UserManager, WebStorageStateStore } = await import("oidc-client-ts");
  manager = new UserManager({
    authority: wanted.issuer,
    client_id: wanted.client_id,
    scope: wanted.scopes,
    redirect_uri: here(),
    post_logout_redirect_uri: here(),
    response_type: "code",
    userStore: new WebStorageStateStore({ store: window.sessionStorage }), // of this tab, until it is closed
    stateStore: new WebStorageStateStore({ store: window.sessionStorage }),
    automaticSilentRenew: false, // renewed when it is asked for; hidden frames are not allowed here
  });
  const given = new URLSearchParams(window.location.search);
  if (given.has("state") && (given.has("code") || given.has("error"))) {
    const user = await manager.signinRedirectCallback();
    const fragment = typeof user.state === "string" ? user.state : "";
    window.history.replaceState(null, "", `${here()}${fragment}`);
    return true;
  }
  if ((await accessToken()) !== null) return true;
  await mustSignIn();
  return false;
}

/** The token to ask the API with; null where nobody signs in, or it has run out. */
export async function accessToken(): Promise<string | null> {
  if (manager === null) return null;
  let user = await manager.getUser();
  if (user !== null && user.expired === true && user.refresh_token !== undefined) {
    user = await manager.signinSilent().catch(() => null);
  }
  return user === null || user.expired === true ? null : user.access_token;
}

/** Leaves for the issuer; the address comes back as it was. */
export async function mustSignIn(): Promise<void> {
  if (manager === null) return;
  await manager.removeUser();
  await manager.signinRedirect({ state: window.location.hash });
  await new Promise(() => undefined); // the browser is leaving
}

/** Who is signed in, and how to end that; null where nobody signs in. */
export async function signedIn(): Promise<{ name: string; leave: () => Promise<void> } | null> {
  const known = manager;
  const user = await known?.getUser();
  if (!known || !user) return null;
  const name = user.profile.email ?? user.profile.preferred_username ?? user.profile.name ?? user.profile.sub;
  const leave = async () => {
    await known.removeUser();
    if ((await known.metadataService.getEndSessionEndpoint()) !== undefined) await known.signoutRedirect();
    else window.location.assign(here());
  };
  return { name, leave };
}

function here(): string {
  return window.location.origin + window.location.pathname;
}
