<?php
require __DIR__ . '/../include/template.php';
session_start();
$_SESSION['visits'] = ($_SESSION['visits'] ?? 0) + 1;
page('Session', "<p>Visits in this session: {$_SESSION['visits']}</p>");
