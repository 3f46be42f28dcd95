<?php
// The site is whatever host it is asked as, so it can be reached at any address and port.
$host = $_SERVER['HTTP_HOST'] ?? '@HOST@';
define('WP_HOME', "http://$host");
define('WP_SITEURL', "http://$host");
define('DB_NAME', 'site');
define('DB_USER', 'site');
define('DB_PASSWORD', 'site');
define('DB_HOST', 'localhost:@SOCKET@');
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
@KEYS@
// No other machine is asked for updates or anything else.
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('WP_AUTO_UPDATE_CORE', false);
define('AUTOMATIC_UPDATER_DISABLED', true);
define('WP_DEFAULT_THEME', 'twentytwentythree');
define('FS_METHOD', 'direct');
$table_prefix = 'wp_';
if (!defined('ABSPATH')) {
    define('ABSPATH', __DIR__ . '/');
}
require_once ABSPATH . 'wp-settings.php';
