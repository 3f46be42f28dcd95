<?php
require __DIR__ . '/../include/template.php';
page('Time', '<p>It is ' . date('c', $_SERVER['REQUEST_TIME']) . '.</p>');
