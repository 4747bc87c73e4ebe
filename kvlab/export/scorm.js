// An LMS that runs this page as a SCORM 1.2 package is told the score; `lms.score` does nothing
// where there is none. SCORM 1.2 Run-Time Environment, 3.2 (finding the API) and 3.4 (data model).
const lms = (() => {
  const find = (from) => {
    for (let at = from, depth = 0; at && depth < 8; at = at.parent, depth += 1) {
      try {
        if (at.API) return at.API;
      } catch {
        return null; // a window of another origin
      }
      if (at.parent === at) return null;
    }
    return null;
  };
  const api = find(window) ?? find(window.opener);
  if (!api || api.LMSInitialize("") !== "true") return { score() {} };
  let open = true;
  const set = (name, value) => api.LMSSetValue(`cmi.core.${name}`, String(value));
  const end = () => {
    if (!open) return;
    open = false;
    api.LMSCommit("");
    api.LMSFinish("");
  };
  set("lesson_status", "incomplete");
  addEventListener("pagehide", end);
  return {
    /** The share that is right, 0 to 1; `done`: the page is at its end. */
    score(share, done) {
      if (!open) return;
      set("score.min", 0);
      set("score.max", 100);
      set("score.raw", Math.round(100 * share));
      if (done) set("lesson_status", "completed");
      api.LMSCommit("");
    },
  };
})();
