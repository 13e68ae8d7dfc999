// Sign-in with authorization code and PKCE, if the deployment has an issuer.

import type { UserManager } from "oidc-client-ts";
import type { Config } from "./config";

let manager: UserManager | null = null;

/** Completes or starts the sign-in.
 *
 * Returns false if the browser is about to be redirected to the issuer. */
export async function begin(config: Config["sign_in"]): Promise<boolean> {
  if (config === null) return true;
  const { UserManager, WebStorageStateStore } = await import("oidc-client-ts");
  manager = new UserManager({
    authority: config.issuer,
    client_id: config.client_id,
    scope: config.scopes,
    redirect_uri: here(),
    post_logout_redirect_uri: here(),
    response_type: "code",
    userStore: new WebStorageStateStore({ store: window.sessionStorage }), // limited to this tab
    stateStore: new WebStorageStateStore({ store: window.sessionStorage }),
    automaticSilentRenew: false, // renewed on demand, because hidden frames are not allowed
  });
  const callback = new URLSearchParams(window.location.search);
  if (callback.has("state") && (callback.has("code") || callback.has("error"))) {
    const user = await manager.signinRedirectCallback();
    const fragment = typeof user.state === "string" ? user.state : "";
    window.history.replaceState(null, "", `${here()}${fragment}`);
    return true;
  }
  if ((await accessToken()) !== null) return true;
  await redirectToSignIn();
  return false;
}

/** The access token for the API; null without sign-in, or if it has expired. */
export async function accessToken(): Promise<string | null> {
  if (manager === null) return null;
  let user = await manager.getUser();
  if (user !== null && user.expired === true && user.refresh_token !== undefined) {
    user = await manager.signinSilent().catch(() => null);
  }
  return user === null || user.expired === true ? null : user.access_token;
}

/** Redirects to the issuer, and back to the current URL afterward. */
export async function redirectToSignIn(): Promise<void> {
  if (manager === null) return;
  await manager.removeUser();
  await manager.signinRedirect({ state: window.location.hash });
  await new Promise(() => undefined); // the browser is being redirected
}

/** The signed-in user and a function to sign out; null without sign-in. */
export async function currentUser(): Promise<{ name: string; signOut: () => Promise<void> } | null> {
  const activeManager = manager;
  const user = await activeManager?.getUser();
  if (!activeManager || !user) return null;
  const name = user.profile.email ?? user.profile.preferred_username ?? user.profile.name ?? user.profile.sub;
  const signOut = async () => {
    await activeManager.removeUser();
    if ((await activeManager.metadataService.getEndSessionEndpoint()) !== undefined)
      await activeManager.signoutRedirect();
    else window.location.assign(here());
  };
  return { name, signOut };
}

function here(): string {
  return window.location.origin + window.location.pathname;
}
