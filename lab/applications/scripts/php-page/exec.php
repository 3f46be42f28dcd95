<?php
require __DIR__ . '/../include/template.php';
page('A program', '<p>The program says ' . htmlspecialchars(trim(shell_exec('date +%s.%N'))) . '</p>');
