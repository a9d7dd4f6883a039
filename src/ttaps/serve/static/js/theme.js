// A classic script in <head>: the chosen theme must be known before the first paint, and modules run after it.
document.documentElement.dataset.theme = localStorage.getItem("ttaps-theme") ?? "auto";
